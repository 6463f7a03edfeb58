// Command pack reads the generator's Pods, checks each against k8s.io/api/core/v1 with no unknown field, and
// writes them as the API server would send them: list items and watch frames, JSON and protobuf. The replay
// server maps these files and only copies bytes.
//
//	pack -in DIR -out DIR
//
// NAME.bin is a run of records, NAME.off the offsets (uint64, little endian) of their starts and of the end.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
)

type output struct {
	file    *os.File
	w       *bufio.Writer
	offsets []uint64
	at      uint64
}

func create(dir, name string) *output {
	f, err := os.Create(filepath.Join(dir, name+".bin"))
	check(err)
	return &output{file: f, w: bufio.NewWriterSize(f, 1<<20), offsets: []uint64{0}}
}

func (o *output) record(parts ...[]byte) {
	for _, p := range parts {
		_, err := o.w.Write(p)
		check(err)
		o.at += uint64(len(p))
	}
	o.offsets = append(o.offsets, o.at)
}

func (o *output) close() {
	check(o.w.Flush())
	check(o.file.Close())
	b := make([]byte, 8*len(o.offsets))
	for i, v := range o.offsets {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	check(os.WriteFile(o.file.Name()[:len(o.file.Name())-4]+".off", b, 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func lines(path string, each func(i int, line []byte)) {
	f, err := os.Open(path)
	check(err)
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(make([]byte, 1<<20), 1<<24)
	i := 0
	for ; s.Scan(); i++ {
		each(i, s.Bytes())
	}
	check(s.Err())
}

func parse(i int, line []byte) *corev1.Pod {
	pod := &corev1.Pod{}
	strict, err := kjson.UnmarshalStrict(line, pod)
	check(err)
	if len(strict) > 0 {
		log.Fatalf("line %d: %v", i+1, strict)
	}
	// Nothing may be lost or invented on the way through the Go types.
	var before, after any
	check(json.Unmarshal(line, &before))
	again, err := json.Marshal(pod)
	check(err)
	check(json.Unmarshal(again, &after))
	if i%97 == 0 && diff("", before, after) {
		log.Fatalf("line %d changed in the round trip", i+1)
	}
	return pod
}

// diff reports fields of a that b lacks or shows otherwise; empty values count as absent.
func diff(path string, a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, _ := b.(map[string]any)
		for k, v := range x {
			if path == ".metadata.managedFields" {
				continue
			}
			if diff(path+"."+k, v, y[k]) {
				return true
			}
		}
		return false
	case []any:
		y, _ := b.([]any)
		if len(x) != len(y) {
			fmt.Println(path, len(x), len(y))
			return true
		}
		for i := range x {
			if diff(path, x[i], y[i]) {
				return true
			}
		}
		return false
	case nil:
		return false
	}
	if a != b {
		fmt.Println(path, a, b)
		return true
	}
	return false
}

func marshalJSON(v any) []byte {
	var b bytes.Buffer
	check(json.NewEncoder(&b).Encode(v)) // as the API server does, <, > and & escaped
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

var envelope = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// frame is one protobuf watch event: a length-delimited WatchEvent that holds an object in its own envelope.
func frame(eventType string, object runtime.Object) []byte {
	var b bytes.Buffer
	check(envelope.Encode(object, &b))
	event := &metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: b.Bytes()}}
	var out bytes.Buffer
	check(protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(event, protobuf.LengthDelimitedFramer.NewFrameWriter(&out)))
	return out.Bytes()
}

func main() {
	in, out := flag.String("in", "", ""), flag.String("out", "", "")
	flag.Parse()
	check(os.MkdirAll(*out, 0o755))
	metav1.AddToGroupVersion(scheme.Scheme, metav1.SchemeGroupVersion)

	js, pb, keys := create(*out, "pods.json"), create(*out, "pods.pb"), create(*out, "pods.keys")
	var containers, images = 0, map[string]bool{}
	lines(filepath.Join(*in, "pods.jsonl"), func(i int, line []byte) {
		pod := parse(i, line)
		containers += len(pod.Spec.Containers)
		images[pod.Spec.Containers[0].Image] = true
		pod.TypeMeta = metav1.TypeMeta{} // items of typed lists carry neither kind nor apiVersion
		item, err := pod.Marshal()
		check(err)
		js.record(marshalJSON(pod), []byte(","))
		pb.record(binary.AppendUvarint([]byte{0x12}, uint64(len(item))), item)
		keys.record([]byte(pod.Namespace + "/" + pod.Name + "\n"))
	})
	n := len(js.offsets) - 1
	sizes := map[string]float64{"json": float64(js.at) / float64(n), "protobuf": float64(pb.at) / float64(n)}
	for _, o := range []*output{js, pb, keys} {
		o.close()
	}

	ejs, epb, rvs := create(*out, "events.json"), create(*out, "events.pb"), create(*out, "events.rv")
	lines(filepath.Join(*in, "events.jsonl"), func(i int, line []byte) {
		pod := parse(i, line)
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		modified := []byte(`{"type":"MODIFIED","object":`)
		end := []byte("}\n")
		ejs.record(modified, marshalJSON(pod), end)
		epb.record(frame("MODIFIED", pod))
		rvs.record([]byte(pod.ResourceVersion + "\n"))
	})
	for _, o := range []*output{ejs, epb, rvs} {
		o.close()
	}
	info, err := os.ReadFile(filepath.Join(*in, "info.json"))
	check(err)
	check(os.WriteFile(filepath.Join(*out, "info.json"), info, 0o644))
	fmt.Printf("%d pods valid, no unknown fields; %.2f containers a pod; %d images; bytes a pod: %v\n", n, float64(containers)/float64(n), len(images), sizes)
}
