// Command consumer uses the packed Go module: it prints the bytes of one message.
package main

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"
	bootstrapv1 "interlock.dev/protos/bootstrap/v1"
)

func main() {
	bytes, err := proto.Marshal(&bootstrapv1.RoomAssignment{Room: math.MaxUint64, DpRank: 7})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%x\n", bytes)
}
