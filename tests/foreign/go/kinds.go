package main

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// workloads are Pods and Deployments: what the server fills in, quantities, status and scale.
func workloads(w *world) {
	client := kubernetes.NewForConfigOrDie(w.config)
	pods(w, client)
	deployments(w, client)
}

// kinds writes and reads objects of several groups: bytes, times to the microsecond, numbers that may be texts.
func kinds(w *world) {
	client := kubernetes.NewForConfigOrDie(w.config)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"text": "secret"}, Data: map[string][]byte{"raw": {1, 2, 255}}}
	hidden, err := client.CoreV1().Secrets(w.namespace).Create(w.ctx, secret, metav1.CreateOptions{})
	w.must(err)
	w.tell("secret: %s %s %v", hidden.Type, hidden.Data["text"], hidden.Data["raw"])
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
	ruled, err := client.RbacV1().Roles(w.namespace).Create(w.ctx, role, metav1.CreateOptions{})
	w.must(err)
	w.tell("role: %v", ruled.Rules)
	moment := metav1.NewMicroTime(time.Unix(1700000000, 123456000))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: pointer("me"), LeaseDurationSeconds: pointer[int32](15), RenewTime: &moment,
	}}
	held, err := client.CoordinationV1().Leases(w.namespace).Create(w.ctx, lease, metav1.CreateOptions{})
	w.must(err)
	w.tell("lease: %s for %d s since %s", *held.Spec.HolderIdentity, *held.Spec.LeaseDurationSeconds, held.Spec.RenewTime.UTC().Format(time.RFC3339Nano))

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "svc"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}
	served, err := client.CoreV1().Services(w.namespace).Create(w.ctx, service, metav1.CreateOptions{})
	w.must(err)
	w.tell("service: %s %s, has an address %t, target %s", served.Spec.Type, served.Spec.Ports[0].Protocol, served.Spec.ClusterIP != "", served.Spec.Ports[0].TargetPort.String())

	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{Suspend: pointer(true), Template: template()}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	batch, err := client.BatchV1().Jobs(w.namespace).Create(w.ctx, job, metav1.CreateOptions{})
	w.must(err)
	w.tell("job: %d completions, back-off %d, %s", *batch.Spec.Completions, *batch.Spec.BackoffLimit, *batch.Spec.CompletionMode)

	path := networkingv1.PathTypePrefix
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: "example.com",
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: &path,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "svc", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		}}}},
	}}}}
	entered, err := client.NetworkingV1().Ingresses(w.namespace).Create(w.ctx, ingress, metav1.CreateOptions{})
	w.must(err)
	w.tell("ingress: %s to %s", entered.Spec.Rules[0].Host, entered.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name)

	half := intstr.FromString("50%")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &half, Selector: &metav1.LabelSelector{}}}
	kept, err := client.PolicyV1().PodDisruptionBudgets(w.namespace).Create(w.ctx, budget, metav1.CreateOptions{})
	w.must(err)
	w.tell("budget: at least %s of everything %t", kept.Spec.MinAvailable.String(), kept.Spec.Selector != nil)

	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, EventTime: moment, ReportingController: "example.com/foreign", ReportingInstance: "one",
		Action: "Tested", Reason: "Tested", Type: "Normal", Note: "a note",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "a"},
	}
	_, err = client.EventsV1().Events(w.namespace).Create(w.ctx, event, metav1.CreateOptions{})
	w.must(err)
	older, err := client.CoreV1().Events(w.namespace).Get(w.ctx, "e", metav1.GetOptions{})
	w.must(err)
	w.tell("event: %s, %s, about %s, at %s", older.Message, older.Reason, older.InvolvedObject.Name, older.EventTime.UTC().Format(time.RFC3339Nano))
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: "nginx:1.29",
			Ports: []corev1.ContainerPort{{ContainerPort: 80}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("0.5"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}},
		}}},
	}
}

func pods(w *world, client kubernetes.Interface) {
	pods := client.CoreV1().Pods(w.namespace)
	made := template()
	pod, err := pods.Create(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: made.Spec}, metav1.CreateOptions{})
	w.must(err)
	container := pod.Spec.Containers[0]
	w.tell("pod: %s %s, grace %d, cpu %s, memory %s, pulled %s, probed each %d s at %s, port %v", pod.Spec.RestartPolicy, pod.Spec.DNSPolicy,
		*pod.Spec.TerminationGracePeriodSeconds, container.Resources.Requests.Cpu(), container.Resources.Requests.Memory(), container.ImagePullPolicy,
		container.LivenessProbe.PeriodSeconds, container.LivenessProbe.HTTPGet.Port.String(), container.Ports[0])
	w.tell("pod: %s %s, %d tolerations, account %s", pod.Status.Phase, pod.Status.QOSClass, len(pod.Spec.Tolerations), pod.Spec.ServiceAccountName)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1700000000, 0)}}
	running, err := pods.UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
	w.must(err)
	w.tell("pod status: %s, ready since %s", running.Status.Phase, running.Status.Conditions[0].LastTransitionTime.UTC().Format(time.RFC3339))
	_, err = pods.Create(w.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, metav1.CreateOptions{})
	w.refused("pod without containers", err)
	w.must(pods.Delete(w.ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: pointer[int64](0)}))
	_, err = pods.Get(w.ctx, "p", metav1.GetOptions{})
	w.refused("pod after its deletion", err)
}

func deployments(w *world, client kubernetes.Interface) {
	deployments := client.AppsV1().Deployments(w.namespace)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
		Replicas: pointer[int32](0), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
	}}
	made, err := deployments.Create(w.ctx, deployment, metav1.CreateOptions{})
	w.must(err)
	w.tell("deployment: generation %d, %s surge %s, history %d", made.Generation, made.Spec.Strategy.Type, made.Spec.Strategy.RollingUpdate.MaxSurge.String(), *made.Spec.RevisionHistoryLimit)
	scaled, err := deployments.UpdateScale(w.ctx, "d", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: w.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, metav1.UpdateOptions{})
	w.must(err)
	w.tell("scale: %d of %s", scaled.Spec.Replicas, scaled.Status.Selector)
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}`)
	patched, err := deployments.Patch(w.ctx, "d", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	w.must(err)
	w.tell("strategic patch: %d containers, first %s", len(patched.Spec.Template.Spec.Containers), patched.Spec.Template.Spec.Containers[0].Name)
	w.must(deployments.Delete(w.ctx, "d", metav1.DeleteOptions{PropagationPolicy: pointer(metav1.DeletePropagationBackground)}))
}
