// Command foreign uses an API server the way Go programs do and prints what came of it, one line a step, without anything that differs from
// run to run: foreign CHAPTER NAMESPACE, with KUBECONFIG set. Its output against a real API server is the expectation; see ../test_go.py.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// world is what every chapter gets: a server, an empty namespace, and a place to tell.
type world struct {
	ctx       context.Context
	config    *rest.Config
	namespace string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: foreign CHAPTER NAMESPACE")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	config.QPS, config.Burst = 1000, 1000
	config.UserAgent = "foreign/1"
	seen := newContents()
	config.Wrap(seen.wrap)
	limit := time.Minute
	if os.Args[1] == "mirror" {
		limit = 24 * time.Hour // until its input ends
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	chapters := map[string]func(*world){
		"typed": typed, "workloads": workloads, "kinds": kinds, "paging": paging, "apply": applying, "watch": watching,
		"informers": informing, "dynamic": dynamically, "metadata": metadataOnly, "discovery": discovering,
		"openapi": documented, "mirror": mirroring,
	}
	run, known := chapters[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "no chapter %s\n", os.Args[1])
		os.Exit(2)
	}
	run(&world{ctx: ctx, config: config, namespace: os.Args[2]})
	fmt.Printf("sent %s, received %s\n", seen.sent(), seen.received())
}

func (w *world) tell(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), w.namespace, "NAMESPACE")
	fmt.Println(text)
}

// refused tells what an error says: its reason and its text.
func (w *world) refused(what string, err error) {
	w.tell("%s: %s: %v", what, apierrors.ReasonForError(err), err)
}

// must ends the program: nothing that follows would mean anything.
func (w *world) must(err error) {
	if err != nil {
		w.tell("unexpected: %s: %v", apierrors.ReasonForError(err), err)
		os.Exit(1)
	}
}

// inOrder shows a map the same way each time.
func inOrder(values map[string]string) string {
	var parts []string
	for name, value := range values {
		parts = append(parts, name+"="+value)
	}
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

func pointer[T any](value T) *T { return &value }
