// Command server replays what pack wrote as a Kubernetes API server would send it: pods only, list and watch.
//
//	server -data DIR [-copies N] [-ca FILE] -listen 127.0.0.1:0 -tls 127.0.0.1:0
//
// It prints one line, "ready HTTP-ADDRESS HTTPS-ADDRESS", when it answers.
//
// A watch sends its MODIFIED events after POST /control/go, each as its own write and flush, and stays open.
// POST /control/go?pause=2ms waits so long before each: a client that is quick enough gets them one at a time.
// POST /control/reset?events=M ends all watches and arms the next run with the first M events.
// GET /control/info tells the counts, resourceVersions and one pod's key.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// records is one file of pack, mapped.
type records struct {
	data    []byte
	offsets []uint64
}

func load(dir, name string) *records {
	f, err := os.Open(filepath.Join(dir, name+".bin"))
	check(err)
	defer f.Close()
	st, err := f.Stat()
	check(err)
	r := &records{}
	if st.Size() > 0 {
		r.data, err = syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
		check(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name+".off"))
	check(err)
	for ; len(b) >= 8; b = b[8:] {
		r.offsets = append(r.offsets, binary.LittleEndian.Uint64(b))
	}
	return r
}

func (r *records) len() int              { return len(r.offsets) - 1 }
func (r *records) slice(a, b int) []byte { return r.data[r.offsets[a]:r.offsets[b]] }

// shape is one representation of the pods: JSON or protobuf.
type shape struct {
	protobuf     bool
	pods, events *records
}

// added is the ADDED frame of a pod, given as an item of a list.
func (s *shape) added(buf, item []byte) []byte {
	if !s.protobuf {
		item = item[:len(item)-1]
		buf = append(buf, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",`...)
		return append(append(buf, item[1:]...), "}\n"...)
	}
	_, skip := binary.Uvarint(item[1:])
	return frame(buf, "ADDED", s.envelope(nil, item[1+skip:]))
}

// envelope wraps an object's protobuf as runtime.Unknown behind the magic number.
func (s *shape) envelope(buf, object []byte) []byte {
	return append(append(buf, envelopeHead("v1", "Pod", len(object))...), append(object[:len(object):len(object)], 0x1a, 0, 0x22, 0)...)
}

func field(buf []byte, number int, value []byte) []byte {
	buf = append(buf, byte(number<<3|2))
	buf = binary.AppendUvarint(buf, uint64(len(value)))
	return append(buf, value...)
}

func envelopeHead(apiVersion, kind string, length int) []byte {
	head := []byte("k8s\x00")
	head = field(head, 1, field(field(nil, 1, []byte(apiVersion)), 2, []byte(kind)))
	return binary.AppendUvarint(append(head, 0x12), uint64(length))
}

func frame(buf []byte, eventType string, envelope []byte) []byte {
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = field(buf, 1, []byte(eventType))
	buf = field(buf, 2, field(nil, 1, envelope))
	binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
	return buf
}

// bookmark is the BOOKMARK frame at a resourceVersion, encoded by apimachinery.
func (s *shape) bookmark(rv string, initialEnd bool) []byte {
	meta := metav1.ObjectMeta{ResourceVersion: rv}
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	object := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta}
	if s.protobuf {
		var b bytes.Buffer
		check(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &b))
		return frame(nil, "BOOKMARK", b.Bytes())
	}
	b, err := json.Marshal(object)
	check(err)
	return append(append([]byte(`{"type":"BOOKMARK","object":`), b...), "}\n"...)
}

type info struct {
	Pods   int    `json:"pods"`
	Events int    `json:"events"`
	ListRV string `json:"list_rv"`
	LastRV string `json:"last_rv"`
	PodKey string `json:"pod_key"`
	CPU    string `json:"server_cpu_s"`
	// Watches are those that are open.
	Watches int `json:"watches"`
}

type server struct {
	shapes map[string]*shape
	keys   map[string]int
	rvs    []uint64
	listRV string
	first  string
	copies int
	// Of the packed pods, by number.
	namespaces []string

	mu     sync.Mutex
	events int
	open   int           // watches
	run    chan struct{} // closed by go
	pause  time.Duration // before each event, as go said
	ended  chan struct{} // closed by reset
}

func (s *server) negotiate(accept string) *shape {
	if strings.HasPrefix(accept, "application/vnd.kubernetes.protobuf") {
		return s.shapes["pb"]
	}
	return s.shapes["json"]
}

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	sh, partial := s.negotiate(r.Header.Get("Accept")), wantsMetadata(r)
	if partial {
		sh = s.shapes["json"]
	}
	q := r.URL.Query()
	start, n := 0, s.count()
	end := n
	if token := q.Get("continue"); token != "" {
		b, _ := base64.RawURLEncoding.DecodeString(token)
		start, _ = strconv.Atoi(string(b))
	}
	// The real server's watch cache answers resourceVersion=0 whole, whatever the limit.
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && q.Get("resourceVersion") != "0" {
		end = min(n, start+limit)
	}
	meta := metav1.ListMeta{ResourceVersion: s.listRV}
	if end < n {
		meta.Continue = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(end)))
		remaining := int64(n - end)
		meta.RemainingItemCount = &remaining
	}
	var head, tail []byte
	if sh.protobuf {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		b, err := meta.Marshal()
		check(err)
		b = field(nil, 1, b)
		length := len(b)
		for i := start; i < end; i++ {
			base := i % len(s.namespaces)
			length += len(sh.pods.slice(base, base+1))
		}
		head = append(envelopeHead("v1", "PodList", length), b...)
		tail = []byte{0x1a, 0, 0x22, 0}
	} else {
		w.Header().Set("Content-Type", "application/json")
		b, err := json.Marshal(meta)
		check(err)
		kind := `"kind":"PodList","apiVersion":"v1"`
		if partial {
			kind = `"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`
		}
		head = []byte(fmt.Sprintf(`{%s,"metadata":%s,"items":[`, kind, b))
		tail = []byte("]}\n")
	}
	buf := append(make([]byte, 0, 320<<10), head...)
	var item []byte
	for i := start; i < end; i++ {
		if partial {
			item = s.item(item[:0], sh, i)
			buf = metadataOnly(buf, item)
		} else {
			buf = s.item(buf, sh, i)
		}
		if i == end-1 && !sh.protobuf {
			buf = buf[:len(buf)-1] // no comma behind the last item
		}
		if len(buf) >= 256<<10 {
			if _, err := w.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
	w.Write(append(buf, tail...))
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	sh := s.negotiate(r.Header.Get("Accept"))
	q := r.URL.Query()
	s.mu.Lock()
	run, ended, events := s.run, s.ended, s.events
	s.open++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	if sh.protobuf {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	flusher := w.(http.Flusher)
	w.WriteHeader(http.StatusOK)
	flusher.Flush()
	send := func(b []byte) bool {
		_, err := w.Write(b)
		flusher.Flush()
		return err == nil
	}
	rv, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	bookmarks := q.Get("allowWatchBookmarks") == "true" || q.Get("allowWatchBookmarks") == "1"
	initial := q.Get("sendInitialEvents")
	if initial == "true" || initial == "1" || (initial == "" && rv == 0) {
		rv, _ = strconv.ParseUint(s.listRV, 10, 64)
		var buf, item []byte
		for i := range s.count() {
			item = s.item(item[:0], sh, i)
			buf = sh.added(buf[:0], item)
			if !send(buf) {
				return
			}
		}
		if initial != "" && bookmarks && !send(sh.bookmark(s.listRV, true)) {
			return
		}
	}
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 3600
	}
	timeout := time.After(time.Duration(seconds) * time.Second)
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	last := strconv.FormatUint(rv, 10)
	for {
		select {
		case <-run:
			run = nil
			s.mu.Lock()
			pause := s.pause
			s.mu.Unlock()
			var buf []byte
			for i := sort.Search(events, func(i int) bool { return s.rvs[i] > rv }); i < events; i++ {
				if pause > 0 {
					select {
					case <-time.After(pause):
					case <-ended:
						return
					case <-r.Context().Done():
						return
					}
				}
				buf = s.event(buf[:0], sh, i)
				if !send(buf) {
					return
				}
				last = strconv.FormatUint(s.rvs[i], 10)
			}
		case <-ticker.C:
			if bookmarks && !send(sh.bookmark(last, false)) {
				return
			}
		case <-timeout:
			return
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	i, ok := s.keys[r.PathValue("namespace")+"/"+r.PathValue("name")]
	sh := s.negotiate(r.Header.Get("Accept"))
	if !ok {
		status(w, http.StatusNotFound, "NotFound")
		return
	}
	item := sh.pods.slice(i, i+1)
	if sh.protobuf {
		_, skip := binary.Uvarint(item[1:])
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.Write(sh.envelope(nil, item[1+skip:]))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	item = item[:len(item)-1]
	w.Write([]byte(`{"kind":"Pod","apiVersion":"v1",`))
	w.Write(item[1:])
	w.Write([]byte("\n"))
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`+"\n", reason, reason, code)
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	pods := func(w http.ResponseWriter, r *http.Request) {
		if v := r.URL.Query().Get("watch"); v == "true" || v == "1" || v == "True" {
			s.watch(w, r)
		} else {
			compressed(s.list)(w, r)
		}
	}
	discover(mux)
	mux.HandleFunc("GET /version/", version)
	mux.HandleFunc("GET /version", version)
	mux.HandleFunc("GET /api/v1/pods", pods)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods", s.named(pods))
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", s.get)
	mux.HandleFunc("PUT /api/v1/namespaces/{namespace}/pods/{name}", s.update)
	mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/pods/{name}", s.patch)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/{review}", allowed)
	mux.HandleFunc("POST /control/go", func(w http.ResponseWriter, r *http.Request) {
		var pause time.Duration
		if asked := r.URL.Query().Get("pause"); asked != "" {
			var err error
			if pause, err = time.ParseDuration(asked); err != nil {
				status(w, http.StatusBadRequest, "BadRequest")
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case <-s.run:
		default:
			s.pause = pause
			close(s.run)
		}
		w.Write([]byte("{}\n"))
	})
	mux.HandleFunc("POST /control/reset", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.ended)
		s.run, s.ended = make(chan struct{}), make(chan struct{})
		if m, err := strconv.Atoi(r.URL.Query().Get("events")); err == nil {
			s.events = min(m, len(s.rvs))
		}
		w.Write([]byte("{}\n"))
	})
	mux.HandleFunc("GET /control/info", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		var usage syscall.Rusage
		check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		cpu := float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6
		answer := info{Pods: s.count(), Events: s.events, ListRV: s.listRV, LastRV: s.listRV, PodKey: s.first, CPU: fmt.Sprintf("%.3f", cpu), Watches: s.open}
		if s.events > 0 {
			answer.LastRV = strconv.FormatUint(s.rvs[s.events-1], 10)
		}
		json.NewEncoder(w).Encode(answer)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache, private")
		mux.ServeHTTP(w, r)
	})
}

// selfCheck compares the hand-made frames with apimachinery's.
func (s *server) selfCheck() {
	sh := s.shapes["pb"]
	item := sh.pods.slice(0, 1)
	_, skip := binary.Uvarint(item[1:])
	pod := &corev1.Pod{}
	check(pod.Unmarshal(item[1+skip:]))
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	var b, want bytes.Buffer
	check(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &b))
	event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: b.Bytes()}}
	check(protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(event, protobuf.LengthDelimitedFramer.NewFrameWriter(&want)))
	if got := sh.added(nil, item); !bytes.Equal(got, want.Bytes()) {
		log.Fatalf("hand-made watch frame differs: %d bytes, want %d", len(got), want.Len())
	}
}

// selfSigned makes a certificate that is its own authority, and writes it to a file if one is named.
func selfSigned(file string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	if file != "" {
		check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func main() {
	copies := flag.Int("copies", 1, "serve each pod so many times")
	authority := flag.String("ca", "", "write the certificate of the TLS listener to this file")
	data, listen, listenTLS := flag.String("data", "", ""), flag.String("listen", "127.0.0.1:0", ""), flag.String("tls", "127.0.0.1:0", "")
	flag.Parse()
	metav1.AddToGroupVersion(scheme.Scheme, metav1.SchemeGroupVersion)
	if *copies < 1 || *copies > maxCopies {
		log.Fatalf("-copies must be 1 to %d", maxCopies)
	}
	s := &server{copies: *copies, shapes: map[string]*shape{}, keys: map[string]int{}, run: make(chan struct{}), ended: make(chan struct{})}
	for _, name := range []string{"json", "pb"} {
		sh := &shape{protobuf: name == "pb", pods: load(*data, "pods."+name), events: load(*data, "events."+name)}
		s.shapes[name] = sh
	}
	keys, rvs := load(*data, "pods.keys"), load(*data, "events.rv")
	for i := range keys.len() {
		key := strings.TrimSpace(string(keys.slice(i, i+1)))
		namespace, _, _ := strings.Cut(key, "/")
		s.keys[key] = i
		s.namespaces = append(s.namespaces, namespace)
	}
	s.first = strings.TrimSpace(string(keys.slice(0, 1)))
	for i := range rvs.len() {
		rv, err := strconv.ParseUint(strings.TrimSpace(string(rvs.slice(i, i+1))), 10, 64)
		check(err)
		s.rvs = append(s.rvs, rv)
	}
	s.events = len(s.rvs)
	b, err := os.ReadFile(filepath.Join(*data, "info.json"))
	check(err)
	var generated struct {
		ListRV string `json:"list_rv"`
	}
	check(json.Unmarshal(b, &generated))
	s.listRV = generated.ListRV
	s.selfCheck()
	secureListener, err := net.Listen("tcp", *listenTLS)
	check(err)
	secure := &http.Server{Handler: s.handler(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{selfSigned(*authority)}}}
	go func() { check(secure.ServeTLS(secureListener, "", "")) }()
	l, err := net.Listen("tcp", *listen)
	check(err)
	fmt.Println("ready", l.Addr(), secureListener.Addr())
	check((&http.Server{Handler: s.handler()}).Serve(l))
}
