package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// mirror is the store of one informer and what its handlers were told that cannot be.
type mirror struct {
	lock   sync.Mutex
	known  map[string]bool
	faults []string
	events int
	store  cache.Store
}

// watchHandlers checks that an object is added once, and that only an object that was added is updated and deleted.
func (m *mirror) watchHandlers(informer cache.SharedIndexInformer) {
	m.known = map[string]bool{}
	m.store = informer.GetStore()
	seen := func(what string, obj any, before, after bool) {
		m.lock.Lock()
		defer m.lock.Unlock()
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		m.events++
		if m.known[key] != before {
			m.faults = append(m.faults, fmt.Sprintf("%s of %s, which was known: %v", what, key, m.known[key]))
		}
		m.known[key] = after
		if tombstone, is := obj.(cache.DeletedFinalStateUnknown); is {
			obj = tombstone.Obj
		}
		if _, secret := dataOf(obj)["secret"]; secret {
			m.faults = append(m.faults, fmt.Sprintf("%s of %s shows its secret", what, key))
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen("addition", obj, false, true) },
		UpdateFunc: func(_, obj any) { seen("update", obj, true, true) },
		DeleteFunc: func(obj any) { seen("deletion", obj, true, false) },
	})
}

// dataOf returns the data of a ConfigMap.
func dataOf(obj any) map[string]string {
	switch found := obj.(type) {
	case *corev1.ConfigMap:
		return found.Data
	case *unstructured.Unstructured:
		data, _, _ := unstructured.NestedStringMap(found.Object, "data")
		return data
	}
	return nil
}

// shown returns labels, data and version of each object in the store.
func (m *mirror) shown() map[string]any {
	result := map[string]any{}
	for _, obj := range m.store.List() {
		key, _ := cache.MetaNamespaceKeyFunc(obj)
		accessor := obj.(metav1.Object)
		result[key] = map[string]any{
			"labels": accessor.GetLabels(), "data": dataOf(obj), "version": accessor.GetResourceVersion(),
		}
	}
	return result
}

// mirroring runs informers of ConfigMaps, typed (protobuf) and dynamic (JSON), and prints their stores whenever a line arrives on stdin.
func mirroring(w *world) {
	stop := make(chan struct{})
	typed := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(w.config), 0)
	untyped := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(w.config), 0)
	mirrors := map[string]*mirror{"typed": {}, "dynamic": {}}
	mirrors["typed"].watchHandlers(typed.Core().V1().ConfigMaps().Informer())
	mirrors["dynamic"].watchHandlers(untyped.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Informer())
	typed.Start(stop)
	untyped.Start(stop)
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		answer := map[string]any{}
		for name, m := range mirrors {
			m.lock.Lock()
			answer[name] = map[string]any{"store": m.shown(), "faults": m.faults, "events": m.events}
			m.lock.Unlock()
		}
		_ = out.Encode(answer)
	}
	close(stop)
}
