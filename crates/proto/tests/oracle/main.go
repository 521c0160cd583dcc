// Command oracle prints what the official Go modules say about the wire: a FileDescriptorSet with the files csi.proto
// and identity.proto, on standard output.
//
// It takes one argument, the version of the CSI spec it is meant to be built with, and refuses to speak for another.
// go.mod asks for the newer of the two versions we compare with, v1.12.0.mod for the older.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

const specModule = "github.com/container-storage-interface/spec"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "oracle: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments; give one, the expected version of %s", len(args), specModule)
	}
	if err := expectVersion(args[0]); err != nil {
		return err
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, file := range []protoreflect.FileDescriptor{csi.File_csi_proto, identity.File_identity_identity_proto} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return fmt.Errorf("encoding the descriptors failed: %w", err)
	}
	_, err = os.Stdout.Write(encoded)
	return err
}

// expectVersion guards against a module file that asks for one version and is given another.
func expectVersion(want string) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("the binary carries no build information; build it with Go modules on")
	}
	for _, module := range info.Deps {
		if module.Path != specModule {
			continue
		}
		if module.Replace != nil || module.Version != want {
			return fmt.Errorf("built with %s %s, expected %s unreplaced", specModule, module.Version, want)
		}
		return nil
	}
	return fmt.Errorf("the binary was not built with %s", specModule)
}
