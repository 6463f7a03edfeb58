// A program that reads endpoints as the NGINX ingress controller does: with its store package, unmodified, and with plain informers.
//
// It knows nothing of a proxy. Whenever a line arrives on stdin, it prints what it sees, as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/eapache/channels"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"k8s.io/ingress-nginx/internal/ingress/controller/ingressclass"
	"k8s.io/ingress-nginx/internal/ingress/controller/store"
)

// view is what one reader of endpoints sees now, and everything that it has seen.
type view struct {
	// Now has the addresses of each object, by its resource version.
	Now map[string][]string `json:"now"`
	// Seen has each address that was in the reader's cache, or in one of its events.
	Seen []string `json:"seen"`
}

// observer collects the addresses of a reader.
type observer struct {
	lock sync.Mutex
	seen map[string]bool
	read func() map[string][]string
}

func observe(read func() map[string][]string) *observer {
	return &observer{seen: map[string]bool{}, read: read}
}

func (o *observer) note(addresses []string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, address := range addresses {
		o.seen[address] = true
	}
}

func (o *observer) view() view {
	now := o.read()
	for _, addresses := range now {
		o.note(addresses)
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	seen := []string{}
	for address := range o.seen {
		seen = append(seen, address)
	}
	slices.Sort(seen)
	return view{Now: now, Seen: seen}
}

// follow notes the addresses of each event of an informer.
func (o *observer) follow(informer cache.SharedIndexInformer) {
	note := func(obj any) {
		if tombstone, is := obj.(cache.DeletedFinalStateUnknown); is {
			obj = tombstone.Obj
		}
		o.note(addressesOf(obj))
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(before, after any) { note(before); note(after) },
		DeleteFunc: note,
	})
}

// informed reads the cache of an informer.
func informed(informer cache.SharedIndexInformer) *observer {
	o := observe(func() map[string][]string {
		now := map[string][]string{}
		for _, obj := range informer.GetStore().List() {
			now[versionOf(obj)] = addressesOf(obj)
		}
		return now
	})
	o.follow(informer)
	return o
}

func versionOf(obj any) string {
	switch found := obj.(type) {
	case *discoveryv1.EndpointSlice:
		return found.ResourceVersion
	case *corev1.Endpoints:
		return found.ResourceVersion
	}
	return ""
}

// addressesOf returns each address of an object with each of its ports, ready or not.
func addressesOf(obj any) []string {
	found := []string{}
	switch object := obj.(type) {
	case *discoveryv1.EndpointSlice:
		for _, port := range object.Ports {
			for _, endpoint := range object.Endpoints {
				for _, address := range endpoint.Addresses {
					found = append(found, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	case *corev1.Endpoints:
		for _, subset := range object.Subsets {
			for _, port := range subset.Ports {
				for _, address := range append(slices.Clone(subset.Addresses), subset.NotReadyAddresses...) {
					found = append(found, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// storeOf runs the store of the ingress controller for a namespace.
func storeOf(client kubernetes.Interface, namespace string, stop chan struct{}) (store.Storer, *channels.RingChannel) {
	updates := channels.NewRingChannel(1024)
	found := store.New(
		namespace, labels.Everything(), namespace+"/settings", "", "", "", time.Hour, client, updates, false, true,
		&ingressclass.Configuration{Controller: ingressclass.DefaultControllerName, AnnotationValue: ingressclass.DefaultAnnotationValue},
		true,
	)
	found.Run(stop)
	return found, updates
}

// run prints the views for each line of stdin.
func run(kubeconfig, namespace, service string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)

	ingresses, updates := storeOf(client, namespace, stop)
	observers := map[string]*observer{"store": observe(func() map[string][]string {
		now := map[string][]string{}
		found, _ := ingresses.GetServiceEndpointsSlices(namespace + "/" + service)
		for _, slice := range found {
			now[slice.ResourceVersion] = addressesOf(slice)
		}
		return now
	})}
	// The channel has the events on which the controller would write nginx.conf.
	go func() {
		for update := range updates.Out() {
			observers["store"].note(addressesOf(update.(store.Event).Obj))
		}
	}()

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	observers["endpoints"] = informed(factory.Core().V1().Endpoints().Informer())
	observers["endpointslices"] = informed(factory.Discovery().V1().EndpointSlices().Informer())
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		answer := map[string]any{"ingresses": len(ingresses.ListIngresses())}
		for name, observer := range observers {
			answer[name] = observer.view()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: PROGRAM KUBECONFIG NAMESPACE SERVICE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
