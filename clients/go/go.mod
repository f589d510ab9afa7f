module github.com/dueq/dueq/clients/go

go 1.24
