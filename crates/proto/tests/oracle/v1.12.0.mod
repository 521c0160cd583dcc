module volmedic/oracle

go 1.24.0

require (
	github.com/container-storage-interface/spec v1.12.0
	github.com/csi-addons/spec v0.2.1-0.20260515055340-d4a373713b9a
	google.golang.org/protobuf v1.36.10
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	golang.org/x/net v0.38.0 // indirect
	golang.org/x/sys v0.31.0 // indirect
	golang.org/x/text v0.23.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20230803162519-f966b187b2e5 // indirect
	google.golang.org/grpc v1.57.1 // indirect
)
