package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// What clients ask of objects beside whole lists: metadata alone, and writes. Nothing is stored: each answer costs the client what a real one would.

const (
	partialList   = "as=PartialObjectMetadataList"
	partialObject = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`
)

func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), partialList)
}

// metadataOnly makes an item of a list, with its comma, one of a metadata list.
func metadataOnly(buf, item []byte) []byte {
	end := bytes.Index(item, []byte(`},"spec":{`)) // metadata come first; in managedFields it is "f:spec"
	buf = append(append(buf, partialObject...), item[1:end+1]...)
	return append(buf, "},"...)
}

// update answers with the object that was sent, as a server does that changed nothing else.
func (s *server) update(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	content := r.Header.Get("Content-Type")
	if content == "" {
		content = "application/json"
	}
	w.Header().Set("Content-Type", content)
	w.Write(body)
}

// patch answers with the object as it is.
func (s *server) patch(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		s.get(w, r)
	}
}

// version is what kr8s asks for before anything else.
func version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`+"\n")
}

// allowed answers every question whether somebody may do something, which a proxy asks that answers from a cache.
func allowed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"status":{"allowed":true}}`+"\n")
}

// named answers a list that a field selector narrows to one pod, which is how kr8s gets a pod by name; all other lists are whole.
func (s *server) named(whole http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, name, found := strings.Cut(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		if !found || r.URL.Query().Has("watch") {
			whole(w, r)
			return
		}
		name, _, _ = strings.Cut(name, ",")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[`, s.listRV)
		if i, ok := s.keys[r.PathValue("namespace")+"/"+name]; ok {
			item := s.shapes["json"].pods.slice(i, i+1)
			w.Write(item[:len(item)-1])
		}
		io.WriteString(w, "]}\n")
	}
}
