module github.com/mizzen-dev/mizzen/packaging/go/mizzen

go 1.21
