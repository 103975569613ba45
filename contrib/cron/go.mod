module github.com/aetomala/worklease/contrib/cron

go 1.26

require (
	github.com/aetomala/worklease v0.0.0
	github.com/robfig/cron/v3 v3.0.1
)

replace github.com/aetomala/worklease => ../..
