module driver

go 1.24
