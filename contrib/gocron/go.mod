module github.com/aetomala/worklease/contrib/gocron

go 1.26

require (
	github.com/aetomala/worklease v0.0.0
	github.com/go-co-op/gocron/v2 v2.21.2
)

replace github.com/aetomala/worklease => ../..
