module github.com/aetomala/worklease/bench

go 1.26.0

require (
	cirello.io/pglock v1.16.1
	github.com/aetomala/worklease v0.0.0
	github.com/aetomala/worklease/backend/postgres/pgxlisten v0.0.0
	github.com/aetomala/worklease/backend/redis v0.0.0
	github.com/bsm/redislock v0.9.4
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/riverqueue/river/riverdriver v0.51.2
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/lib/pq v1.12.3 // indirect
	github.com/riverqueue/river/rivershared v0.51.2 // indirect
	github.com/riverqueue/river/rivertype v0.51.2 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/aetomala/worklease => ..

replace github.com/aetomala/worklease/backend/postgres/pgxlisten => ../backend/postgres/pgxlisten

replace github.com/aetomala/worklease/backend/redis => ../backend/redis
