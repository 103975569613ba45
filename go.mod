module github.com/aetomala/worklease

go 1.26
