package main

import (
	"bytes"
	"fmt"
	"log"
	"strconv"
)

// Many pods from few: every packed pod is served several times, each copy in a namespace of its own and with a uid of its own. Both keep their
// length, so that nothing around them changes, in JSON or in protobuf. Copy 0 is the pod as it was packed.

const digits = "0123456789abcdefghijklmnopqrstuvwxyz"

// maxCopies is what two digits can name.
const maxCopies = len(digits) * len(digits)

var (
	jsonNamespace = []byte(`"namespace":"`)
	jsonUID       = []byte(`"uid":"`)
	protoUID      = []byte{0x2a, 36} // ObjectMeta.uid: field 5, 36 bytes
)

// rename makes an object in data that of its copy, in place.
func rename(data []byte, protobuf bool, namespace string, number int) {
	if number == 0 {
		return
	}
	// The metadata come first, and in them the namespace before any other field that could look like it.
	start, uid := jsonNamespace, jsonUID
	if protobuf {
		start, uid = []byte{0x1a, byte(len(namespace))}, protoUID // ObjectMeta.namespace: field 3
	}
	at := bytes.Index(data, append(start[:len(start):len(start)], namespace...))
	if at < 0 {
		log.Fatalf("no namespace %q in an object", namespace)
	}
	end := at + len(start) + len(namespace)
	data[end-2], data[end-1] = digits[number/len(digits)], digits[number%len(digits)]
	at = end + bytes.Index(data[end:], uid) + len(uid)
	first, err := strconv.ParseUint(string(data[at:at+4]), 16, 16)
	check(err)
	copy(data[at:], fmt.Sprintf("%04x", uint16(first)^uint16(number*40503)))
}

// namespaceOf reads it off an object's JSON.
func namespaceOf(document []byte) string {
	_, rest, _ := bytes.Cut(document, jsonNamespace)
	name, _, found := bytes.Cut(rest, []byte{'"'})
	if !found {
		log.Fatal("an object without a namespace")
	}
	return string(name)
}

// count is how many pods there are, copies included.
func (s *server) count() int { return len(s.namespaces) * s.copies }

// item appends pod i as it stands in a list.
func (s *server) item(buf []byte, sh *shape, i int) []byte {
	base, at := i%len(s.namespaces), len(buf)
	buf = append(buf, sh.pods.slice(base, base+1)...)
	rename(buf[at:], sh.protobuf, s.namespaces[base], i/len(s.namespaces))
	return buf
}

// event appends event i; events go to the copies in turn.
func (s *server) event(buf []byte, sh *shape, i int) []byte {
	at := len(buf)
	buf = append(buf, sh.events.slice(i, i+1)...)
	if number := i % s.copies; number > 0 {
		rename(buf[at:], sh.protobuf, namespaceOf(s.shapes["json"].events.slice(i, i+1)), number)
	}
	return buf
}
