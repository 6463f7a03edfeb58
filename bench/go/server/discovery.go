package main

import "net/http"

// Discovery as a server with hardly more than pods would answer it: what kopf looks at before it watches.
var discovery = map[string]string{
	"/api":    `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}`,
	"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","verbs":["get","list","watch"]},{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","patch","update","watch"]}]}`,
}

func discover(mux *http.ServeMux) {
	for path, document := range discovery {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(document))
		})
	}
}
