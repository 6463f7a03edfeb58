// Command queues measures add, get and done of distinct keys with client-go's work queue and controller-runtime's priority queue.
//
// All of them wait before the first is taken ("all"), or each is taken as it comes ("each"). One JSON line per queue, order, kind of key and
// round; see package meter.
package main

import (
	"flag"
	"fmt"
	"runtime"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kubeloop/bench/meter"
)

type queue[T comparable] interface {
	Add(T)
	Get() (T, bool)
	Done(T)
	ShutDown()
}

func all[T comparable](q queue[T], keys []T) {
	for _, key := range keys {
		q.Add(key)
	}
	for range keys {
		key, _ := q.Get()
		q.Done(key)
	}
}

func each[T comparable](q queue[T], keys []T) {
	for _, key := range keys {
		q.Add(key)
		taken, _ := q.Get()
		q.Done(taken)
	}
}

func measure[T comparable](name string, keys []T, rounds int, open func() queue[T]) {
	for order, work := range map[string]func(queue[T], []T){"all": all[T], "each": each[T]} {
		for range rounds {
			runtime.GC()
			m := meter.Start()
			q := open()
			work(q, keys)
			m.Report(name+", "+order, len(keys))
			q.ShutDown()
		}
	}
}

func both[T comparable](name string, keys []T, rounds int) {
	measure("work queue, "+name, keys, rounds, func() queue[T] { return workqueue.NewTyped[T]() })
	measure("priority queue, "+name, keys, rounds, func() queue[T] { return priorityqueue.New[T]("") })
}

func main() {
	count := flag.Int("count", 100_000, "how many keys")
	rounds := flag.Int("rounds", 3, "how often")
	flag.Parse()
	texts := make([]string, *count)
	requests := make([]reconcile.Request, *count)
	for i := range *count {
		namespace, name := fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("name-%d", i)
		texts[i] = namespace + "/" + name
		requests[i] = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	both("texts", texts, *rounds)
	both("keys", requests, *rounds)
}
