// Command requests measures client-go's plain requests of typed pods. See ../../README.md for the line protocol.
//
//	requests -kubeconfig FILE -control URL -count N -events M -last-rv RV -get NAMESPACE/NAME [-requests N] [-content protobuf] [-only-get]
//
// -only-get: one GET, for the time that a start takes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"runtime"
	"strings"

	"kubeloop/bench/meter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	kubeconfig, control := flag.String("kubeconfig", "", ""), flag.String("control", "", "")
	count, requests, lastRV := flag.Int("count", 0, ""), flag.Int("requests", 300, ""), flag.String("last-rv", "", "")
	content, get, onlyGet := flag.String("content", "json", ""), flag.String("get", "", ""), flag.Bool("only-get", false, "")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	config.QPS = -1
	config.AcceptContentTypes, config.ContentType = "application/json", "application/json"
	if *content == "protobuf" {
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	clients, err := kubernetes.NewForConfig(config)
	check(err)
	ctx := context.Background()
	namespace, name, _ := strings.Cut(*get, "/")
	pods := clients.CoreV1().Pods(namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	check(err)
	if pod.Name != name || len(pod.Spec.Containers) == 0 {
		log.Fatal("wrong pod")
	}
	if *onlyGet {
		return
	}

	each := func(phase string, do func(i int) error) {
		check(do(0))
		runtime.GC()
		m := meter.Start()
		for i := range *requests {
			check(do(i))
		}
		m.Report(phase, *requests)
	}
	each("get", func(int) error { _, err := pods.Get(ctx, name, metav1.GetOptions{}); return err })
	each("update", func(i int) error {
		pod.Labels["round"] = fmt.Sprint(i)
		pod, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
		return err
	})
	each("patch", func(i int) error {
		body := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, i)
		_, err := pods.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})

	runtime.GC()
	m := meter.Start()
	list, err := clients.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	check(err)
	m.Report("list", len(list.Items))
	if len(list.Items) != *count {
		log.Fatalf("%d pods, want %d", len(list.Items), *count)
	}
	version := list.ResourceVersion
	list = nil

	watch, err := clients.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	check(err)
	runtime.GC()
	m = meter.Start()
	answer, err := http.Post(*control+"/control/go", "", nil)
	check(err)
	answer.Body.Close()
	events := 0
	for event := range watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		events++
		if pod.ResourceVersion == *lastRV {
			break
		}
	}
	m.Report("watch", events)
	m.Report("hold", events)
}
