// Command load puts one kind of load after the other on a Kubernetes API server and prints a JSON line for each: requests per second and
// their latency, or how long a change takes to reach watchers. It speaks HTTP/1.1 over TLS on kept connections, and decodes nothing.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	server = flag.String("server", "", "URL of the server")
	ca     = flag.String("ca", "", "file with the server's certificate authority")
	cert   = flag.String("cert", "", "file with the client's certificate")
	key    = flag.String("key", "", "file with the client's key")
	token  = flag.String("token", "", "file with a token to show instead of a certificate; the namespaces are there already")
	count  = flag.Int("n", 2000, "requests of each kind")
	pods   = flag.Int("pods", 500, "pods in the list")
	fill   = flag.Int("fill", 0, "only create so many ConfigMaps of 2 KB with eight workers, and print after each tenth")
)

const jsonType = "application/json"

type target struct {
	client *http.Client
	bearer string
}

func newTarget() target {
	authority, err := os.ReadFile(*ca)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	shown, bearer := []tls.Certificate{}, ""
	if *token != "" {
		text, err := os.ReadFile(*token)
		check(err)
		bearer = "Bearer " + string(text)
	} else {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		check(err)
		shown = append(shown, pair)
	}
	return target{bearer: bearer, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, Certificates: shown},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
	}}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func (t target) open(method, path, contentType, body string) *http.Response {
	request, err := http.NewRequest(method, *server+path, bytes.NewReader([]byte(body)))
	check(err)
	request.Header.Set("Accept", jsonType)
	if t.bearer != "" {
		request.Header.Set("Authorization", t.bearer)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := t.client.Do(request)
	check(err)
	return response
}

func (t target) do(method, path, contentType, body string) {
	response := t.open(method, path, contentType, body)
	answer, err := io.ReadAll(response.Body)
	check(err)
	response.Body.Close()
	if response.StatusCode >= 300 {
		log.Fatalf("%s %s: %s: %.300s", method, path, response.Status, answer)
	}
}

type figure struct {
	What      string  `json:"what"`
	Workers   int     `json:"workers"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

func report(f figure) { check(json.NewEncoder(os.Stdout).Encode(f)) }

func quantile(all []time.Duration, share float64) float64 {
	slices.Sort(all)
	return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
}

// measure lets workers share the numbers from 0 to n.
func measure(what string, workers, n int, do func(number int)) {
	var next atomic.Int64
	var done sync.WaitGroup
	took := make([]time.Duration, n)
	began := time.Now()
	for range workers {
		done.Go(func() {
			for number := int(next.Add(1)) - 1; number < n; number = int(next.Add(1)) - 1 {
				start := time.Now()
				do(number)
				took[number] = time.Since(start)
			}
		})
	}
	done.Wait()
	report(figure{what, workers, float64(n) / time.Since(began).Seconds(), quantile(took, 0.5), quantile(took, 0.99)})
}

func (t target) namespace(name string) string {
	if t.bearer != "" {
		return "/api/v1/namespaces/" + name
	}
	t.do("POST", "/api/v1/namespaces", jsonType, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
	return "/api/v1/namespaces/" + name
}

func (t target) writes(workers int) {
	path := t.namespace(fmt.Sprintf("load-%d", workers)) + "/configmaps"
	one := func(number int) string { return fmt.Sprintf("%s/c-%06d", path, number) }
	measure("create", workers, *count, func(number int) {
		t.do("POST", path, jsonType, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%06d","labels":{"app":"load"}},"data":{"key":"value","more":"0123456789abcdef0123456789abcdef"}}`, number))
	})
	measure("get", workers, *count, func(number int) { t.do("GET", one(number), "", "") })
	measure("patch", workers, *count, func(number int) {
		t.do("PATCH", one(number), "application/merge-patch+json", fmt.Sprintf(`{"data":{"key":"v%d"}}`, number))
	})
	measure("apply", workers, *count, func(number int) {
		t.do("PATCH", one(number)+"?fieldManager=load", "application/apply-patch+yaml", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%06d"},"data":{"applied":"x"}}`, number))
	})
	measure(fmt.Sprintf("list of %d ConfigMaps", *count), workers, 20*workers, func(int) { t.do("GET", path, "", "") })
	measure("delete", workers, *count, func(number int) { t.do("DELETE", one(number), "", "") })
}

func (t target) lists() {
	root := t.namespace("load-pods")
	t.do("POST", root+"/serviceaccounts", jsonType, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
	for number := range *pods {
		t.do("POST", root+"/pods", jsonType, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%06d","labels":{"app":"load"}},"spec":{"containers":[{"name":"main","image":"nginx:1.25","ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"100m"}}}]}}`, number))
	}
	measure(fmt.Sprintf("list of %d pods", *pods), 1, 50, func(int) { t.do("GET", root+"/pods", "", "") })
	measure(fmt.Sprintf("list of %d pods, from the cache", *pods), 1, 50, func(int) { t.do("GET", root+"/pods?resourceVersion=0", "", "") })
}

// fanOut measures from the sending of a create until a watcher has its event.
func (t target) fanOut(watchers, changes int) {
	path := t.namespace(fmt.Sprintf("load-watch-%d", watchers)) + "/configmaps"
	var lock sync.Mutex
	sent := map[string]time.Time{}
	var lags []time.Duration
	var opened, ended sync.WaitGroup
	opened.Add(watchers)
	for range watchers {
		ended.Go(func() {
			response := t.open("GET", path+"?watch=1&resourceVersion=0&labelSelector=load%3Dwatched", "", "")
			defer response.Body.Close()
			opened.Done()
			lines := bufio.NewReaderSize(response.Body, 1<<16)
			for range changes {
				line, err := lines.ReadBytes('\n')
				now := time.Now()
				check(err)
				_, after, _ := bytes.Cut(line, []byte(`"name":"`))
				name, _, _ := bytes.Cut(after, []byte(`"`))
				lock.Lock()
				lags = append(lags, now.Sub(sent[string(name)]))
				lock.Unlock()
			}
		})
	}
	opened.Wait()
	time.Sleep(200 * time.Millisecond) // a watch begins a moment after its answer does
	for number := range changes {
		name := fmt.Sprintf("w-%06d", number)
		lock.Lock()
		sent[name] = time.Now()
		lock.Unlock()
		t.do("POST", path, jsonType, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"load":"watched"}}}`, name))
		time.Sleep(10 * time.Millisecond)
	}
	ended.Wait()
	report(figure{"change to watcher", watchers, 0, quantile(lags, 0.5), quantile(lags, 0.99)})
}

func (t target) filling(total int) {
	path := t.namespace("load-fill") + "/configmaps"
	value := string(bytes.Repeat([]byte("0123456789abcdef"), 112)) // with its frame about 2 KB
	for part := range 10 {
		first := part * total / 10
		measure(fmt.Sprintf("%d objects", (part+1)*total/10), 8, total/10, func(number int) {
			t.do("POST", path, jsonType, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"f-%07d","labels":{"app":"load"}},"data":{"number":"%d","value":%q}}`, first+number, first+number, value))
		})
	}
}

func main() {
	flag.Parse()
	t := newTarget()
	if *fill > 0 {
		t.filling(*fill)
		return
	}
	t.writes(1)
	t.writes(8)
	t.lists()
	t.fanOut(1, 100)
	t.fanOut(100, 100)
}
