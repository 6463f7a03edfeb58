package main

import (
	"net/http"
	"sort"
	"strings"
	"sync"
)

// contents notes the media types that go to and fro.
type contents struct {
	mutex sync.Mutex
	in    map[string]bool
	out   map[string]bool
}

type roundTripper struct {
	next http.RoundTripper
	seen *contents
}

func (c *contents) wrap(next http.RoundTripper) http.RoundTripper { return &roundTripper{next, c} }

func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	r.seen.mutex.Lock()
	defer r.seen.mutex.Unlock()
	if kind := request.Header.Get("Content-Type"); kind != "" && request.Body != nil && request.Body != http.NoBody {
		r.seen.out[kind] = true
	}
	if kind := response.Header.Get("Content-Type"); kind != "" {
		r.seen.in[kind] = true
	}
	return response, nil
}

func newContents() *contents { return &contents{in: map[string]bool{}, out: map[string]bool{}} }

func (c *contents) received() string { return c.list(c.in) }
func (c *contents) sent() string     { return c.list(c.out) }

func (c *contents) list(which map[string]bool) string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var kinds []string
	for kind := range which {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	return strings.Join(kinds, " and ")
}
