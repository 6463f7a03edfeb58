package main

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// compressedWriter compresses what is written, as kube-apiserver compresses lists of more than 128 KiB: gzip, level 1.
// Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/writers.go.
type compressedWriter struct {
	http.ResponseWriter
	gzip *gzip.Writer
}

func (w compressedWriter) Write(data []byte) (int, error) { return w.gzip.Write(data) }

// compressed lets a handler of whole lists compress its answers for clients that accept it. client-go does, unless it is told not to.
func compressed(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || r.URL.Query().Get("limit") != "" {
			handle(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Vary", "Accept-Encoding")
		writer, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		check(err)
		handle(compressedWriter{w, writer}, r)
		check(writer.Close())
	}
}
