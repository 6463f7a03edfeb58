// Command clientgo measures client-go's informer of pods, with an index by node. See ../../README.md for the line protocol.
//
//	clientgo -server URL -count N -last-rv RV [-content protobuf] [-strip]
//	clientgo -server URL -get NAMESPACE/NAME
//
// -strip: a transform drops managedFields before the store takes an object.
// The initial list is streamed (the default since 1.35) unless KUBE_FEATURE_WatchListClient=false.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"kubeloop/bench/meter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	server := flag.String("server", "", "")
	count := flag.Int("count", 0, "")
	lastRV := flag.String("last-rv", "", "")
	content := flag.String("content", "json", "")
	strip := flag.Bool("strip", false, "")
	get := flag.String("get", "", "")
	flag.Parse()

	whole := meter.Start()
	config := &rest.Config{Host: *server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: strings.HasPrefix(*server, "https")}}
	if *content == "protobuf" {
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		config.ContentType = "application/vnd.kubernetes.protobuf"
	} else {
		config.AcceptContentTypes, config.ContentType = "application/json", "application/json"
	}
	ctx := context.Background()
	if namespace, name, ok := strings.Cut(*get, "/"); ok {
		clients, err := kubernetes.NewForConfig(config)
		check(err)
		pod, err := clients.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		check(err)
		if pod.Name != name || len(pod.Spec.Containers) == 0 {
			log.Fatal("wrong pod")
		}
		whole.Report("get", 1)
		return
	}

	clients, err := kubernetes.NewForConfig(config)
	check(err)
	informer := informers.NewSharedInformerFactory(clients, 0).Core().V1().Pods().Informer()
	check(informer.AddIndexers(cache.Indexers{"node": func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }}))
	if *strip {
		check(informer.SetTransform(func(obj any) (any, error) {
			if pod, ok := obj.(*corev1.Pod); ok {
				pod.ManagedFields = nil
			}
			return obj, nil
		}))
	}
	var updates atomic.Int64
	seen := make(chan struct{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {},
		UpdateFunc: func(_, obj any) {
			updates.Add(1)
			if obj.(metav1.Object).GetResourceVersion() == *lastRV {
				close(seen)
			}
		},
	})
	check(err)

	runtime.GC()
	meter.Start().Report("start", 0)
	m := meter.Start()
	go informer.Run(ctx.Done())
	for !registration.HasSynced() {
		time.Sleep(2 * time.Millisecond)
	}
	m.Report("sync", len(informer.GetIndexer().ListKeys()))
	if n := len(informer.GetIndexer().ListKeys()); n != *count {
		log.Fatalf("%d pods in the store, want %d", n, *count)
	}
	time.Sleep(time.Second) // the watch opens, the collector finishes
	m = meter.Start()
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: config.TLSClientConfig})
	check(err)
	answer, err := (&http.Client{Transport: transport}).Post(*server+"/control/go", "", nil)
	check(err)
	answer.Body.Close()
	<-seen
	m.Report("events", int(updates.Load()))
	time.Sleep(500 * time.Millisecond)
	runtime.GC()
	debug.FreeOSMemory()
	m.Report("hold", len(informer.GetIndexer().ListKeys()))
	runtime.KeepAlive(informer)
}
