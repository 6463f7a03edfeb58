// Command controller measures controller-runtime: a controller of pods that reads each from its cache. See ../../README.md for the line protocol.
//
//	controller -server URL -count N -last-rv RV [-pause 2ms]
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"io"
	"log"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"

	"kubeloop/bench/meter"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type reconciler struct {
	client client.Client
	count  int
	lastRV string
	mu     sync.Mutex
	seen   map[string]bool
	calls  int
	synced chan struct{}
	ended  chan struct{}
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if len(r.seen) < r.count {
		if r.seen[string(pod.UID)] = true; len(r.seen) == r.count {
			close(r.synced)
		}
	} else if pod.ResourceVersion == r.lastRV {
		close(r.ended)
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) called() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func main() {
	server, lastRV := flag.String("server", "", ""), flag.String("last-rv", "", "")
	count, pause := flag.Int("count", 0, ""), flag.String("pause", "", "")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())

	config := &rest.Config{Host: *server, BearerToken: "bench", QPS: -1}
	config.TLSClientConfig.Insecure = true
	config.AcceptContentTypes, config.ContentType = "application/json", "application/json"
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
	check(err)
	r := &reconciler{client: manager.GetClient(), count: *count, lastRV: *lastRV, seen: map[string]bool{},
		synced: make(chan struct{}), ended: make(chan struct{})}
	check(ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Complete(r))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runtime.GC()
	meter.Start().Report("start", 0)
	m := meter.Start()
	go func() { check(manager.Start(ctx)) }()
	<-r.synced
	m.Report("sync", r.called())

	if *pause != "" {
		time.Sleep(2 * time.Second) // what the start left to be done is not the events'
	}
	runtime.GC()
	asking := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	before := r.called()
	m = meter.Start()
	answer, err := asking.Post(*server+"/control/go?pause="+url.QueryEscape(*pause), "", nil)
	check(err)
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	<-r.ended
	m.Report("events", r.called()-before)
	runtime.GC()
	meter.Start().Report("hold", r.called())
}
