// Command proxyload sends one kind of load through a proxy over HTTP/1.1 on kept connections, and decodes nothing.
//
//	proxyload -url URL [-ca FILE] [-cert FILE -key FILE] [-watch] [-gzip] [-workers N] [-n N] [-needle TEXT]
//
// It prints "ready" when its connections are open and warm, begins at a line on standard input, and prints one JSON line at the end: of
// gets after N requests of each worker, of watches at a second line on standard input.
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
	url     = flag.String("url", "", "what to get or to watch")
	ca      = flag.String("ca", "", "file with the proxy's certificate authority")
	cert    = flag.String("cert", "", "file with the client's certificate")
	key     = flag.String("key", "", "file with the client's key")
	watch   = flag.Bool("watch", false, "read watches until told to stop")
	packed  = flag.Bool("gzip", false, "accept gzip, as client-go does")
	workers = flag.Int("workers", 1, "connections")
	count   = flag.Int("n", 1, "requests of each connection")
	warm    = flag.Int("warm", 0, "requests of each connection beforehand")
	needle  = flag.String("needle", "", "count how often this stands in what arrives")
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// bufferSize is that of a connection: large enough that the client is never what is slow, unless there are a thousand of them.
func bufferSize() int {
	if *workers > 16 {
		return 16 << 10
	}
	return 256 << 10
}

func newClient() *http.Client {
	settings := &tls.Config{}
	if *ca != "" {
		authority, err := os.ReadFile(*ca)
		check(err)
		settings.RootCAs = x509.NewCertPool()
		settings.RootCAs.AppendCertsFromPEM(authority)
	}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		check(err)
		settings.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:    settings,
		TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1
		DisableCompression: !*packed,
		ReadBufferSize:     bufferSize(),
	}}
}

// counter counts bytes and needles.
type counter struct {
	bytes, found *atomic.Int64
	tail         []byte
}

func (c *counter) Write(data []byte) (int, error) {
	c.bytes.Add(int64(len(data)))
	if size := len(*needle); size > 0 {
		// A needle may lie across two reads: the end of the last one is searched again, without a whole needle in it.
		joined := append(c.tail, data[:min(len(data), size-1)]...)
		c.found.Add(int64(bytes.Count(joined, []byte(*needle)) + bytes.Count(data, []byte(*needle))))
		if len(data) >= size-1 {
			c.tail = append(c.tail[:0], data[len(data)-size+1:]...)
		} else {
			c.tail = append([]byte{}, joined[max(0, len(joined)-size+1):]...)
		}
	}
	return len(data), nil
}

func (c *counter) read(response *http.Response, buffer []byte) {
	_, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{response.Body}, buffer)
	if !*watch {
		check(err)
	}
	response.Body.Close()
}

func open(client *http.Client) *http.Response {
	response, err := client.Get(*url)
	check(err)
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		log.Fatalf("GET %s: %s: %s", *url, response.Status, text)
	}
	return response
}

func main() {
	flag.Parse()
	var received, found atomic.Int64
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	took := make([][]time.Duration, *workers)
	ready.Add(*workers)
	for worker := range *workers {
		done.Go(func() {
			client, buffer := newClient(), make([]byte, bufferSize())
			if *watch {
				response := open(client)
				ready.Done()
				(&counter{bytes: &received, found: &found}).read(response, buffer)
				return
			}
			for range *warm {
				(&counter{bytes: new(atomic.Int64), found: new(atomic.Int64)}).read(open(client), buffer)
			}
			ready.Done()
			<-begin
			for range *count {
				start := time.Now()
				(&counter{bytes: &received, found: &found}).read(open(client), buffer)
				took[worker] = append(took[worker], time.Since(start))
			}
		})
	}
	ready.Wait()
	fmt.Println("ready")
	orders := bufio.NewReader(os.Stdin)
	_, err := orders.ReadString('\n')
	check(err)
	began := time.Now()
	close(begin)
	if *watch {
		_, err = orders.ReadString('\n')
		check(err)
	} else {
		done.Wait()
	}
	answer := map[string]any{"bytes": received.Load(), "found": found.Load(), "seconds": time.Since(began).Seconds()}
	if all := slices.Concat(took...); len(all) > 0 {
		slices.Sort(all)
		answer["p50_us"] = float64(all[len(all)/2].Nanoseconds()) / 1000
		answer["min_us"] = float64(all[0].Nanoseconds()) / 1000
	}
	check(json.NewEncoder(os.Stdout).Encode(answer))
}
