package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watching watches from a list's version, with the initial state, and from a version that never was.
func watching(w *world) {
	maps := kubernetes.NewForConfigOrDie(w.config).CoreV1().ConfigMaps(w.namespace)
	list, err := maps.List(w.ctx, metav1.ListOptions{LabelSelector: "by=foreign"})
	w.must(err)
	stream, err := maps.Watch(w.ctx, metav1.ListOptions{LabelSelector: "by=foreign", ResourceVersion: list.ResourceVersion})
	w.must(err)
	change(w, "watched")
	for range 4 {
		w.event(stream)
	}
	stream.Stop()

	_, err = maps.Create(w.ctx, configMap("before", nil), metav1.CreateOptions{})
	w.must(err)
	stream, err = maps.Watch(w.ctx, metav1.ListOptions{
		LabelSelector: "by=foreign", SendInitialEvents: pointer(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	w.must(err)
	w.event(stream)
	w.event(stream)
	w.must(maps.Delete(w.ctx, "before", metav1.DeleteOptions{}))
	w.event(stream)
	stream.Stop()

	short, err := maps.Watch(w.ctx, metav1.ListOptions{LabelSelector: "by=foreign", TimeoutSeconds: pointer[int64](1)})
	w.must(err)
	w.event(short)
	_, err = maps.Watch(w.ctx, metav1.ListOptions{ResourceVersion: "nonsense"})
	w.refused("a version that is none", err)
}

// change makes, changes, unlabels and removes a ConfigMap: a watcher of the label sees four events of two lives.
func change(w *world, name string) {
	maps := kubernetes.NewForConfigOrDie(w.config).CoreV1().ConfigMaps(w.namespace)
	made, err := maps.Create(w.ctx, configMap(name, map[string]string{"step": "1"}), metav1.CreateOptions{})
	w.must(err)
	made.Data["step"] = "2"
	made, err = maps.Update(w.ctx, made, metav1.UpdateOptions{})
	w.must(err)
	made.Labels = nil
	made.Data["step"] = "3"
	made, err = maps.Update(w.ctx, made, metav1.UpdateOptions{})
	w.must(err)
	made.Labels = map[string]string{"by": "foreign"}
	_, err = maps.Update(w.ctx, made, metav1.UpdateOptions{})
	w.must(err)
	w.must(maps.Delete(w.ctx, name, metav1.DeleteOptions{}))
}

// event tells the next event of a stream, or that it ended.
func (w *world) event(stream watch.Interface) {
	select {
	case one, open := <-stream.ResultChan():
		if !open {
			w.tell("the stream ended")
			return
		}
		if found, is := one.Object.(*corev1.ConfigMap); is {
			w.tell("%s %s %s%s", one.Type, found.Name, inOrder(found.Data), inOrder(found.Annotations))
		} else {
			w.tell("%s %T", one.Type, one.Object)
		}
	case <-time.After(10 * time.Second):
		w.tell("nothing came within ten seconds")
	}
}

// informing runs shared informers of two kinds from the same factory.
func informing(w *world) {
	client := kubernetes.NewForConfigOrDie(w.config)
	_, err := client.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, configMap("first", nil), metav1.CreateOptions{})
	w.must(err)
	selected := informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "by=foreign" })
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(w.namespace), selected)
	told := make(chan string, 100)
	maps := factory.Core().V1().ConfigMaps()
	name := func(obj any) string {
		return obj.(*corev1.ConfigMap).Name + " " + inOrder(obj.(*corev1.ConfigMap).Data)
	}
	_, err = maps.Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, first bool) {
			told <- map[bool]string{true: "was there: ", false: "added: "}[first] + name(obj)
		},
		UpdateFunc: func(before, after any) { told <- "updated: " + name(before) + " to " + name(after) },
		DeleteFunc: func(obj any) { told <- "deleted: " + name(obj) },
	})
	w.must(err)
	deployments := factory.Apps().V1().Deployments()
	deployments.Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	for kind, synced := range factory.WaitForCacheSync(stop) {
		if !synced {
			w.tell("%v did not sync", kind)
		}
	}
	change(w, "second")
	w.must(client.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx, "first", metav1.DeleteOptions{}))
	for range 7 {
		select {
		case line := <-told:
			w.tell("%s", line)
		case <-time.After(10 * time.Second):
			w.tell("nothing came within ten seconds")
		}
	}
	found, err := maps.Lister().ConfigMaps(w.namespace).Get("first")
	w.tell("cached after the deletion: %v, %v", found, err)
	close(stop)
	factory.Shutdown()
}
