module dueq-driver

go 1.24

require (
	driver v0.0.0
	github.com/dueq/dueq/clients/go v0.0.0
	github.com/redis/go-redis/v9 v9.18.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	go.uber.org/atomic v1.11.0 // indirect
)

replace driver => ../common

replace github.com/dueq/dueq/clients/go => ../../../clients/go
