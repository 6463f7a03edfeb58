--- Counts requests by route (its object, host, path and backend), method and status.

local cjson = require "cjson.safe"
local balancer = require "balancer"

local store = ngx.shared.kubeloop_requests
local var = ngx.var

--- More series than this are counted as one, so that they cannot fill the dictionary.
local MOST_SERIES = 20000
--- Route of requests without one: NGINX answers malformed requests before they are routed.
local NONE = "\t\t\t"

local M = {}
--- Series by route, method and status.
local known, known_count = {}, 0
--- Clients can send any method.
local METHODS = { GET = 1, HEAD = 1, POST = 1, PUT = 1, PATCH = 1, DELETE = 1, OPTIONS = 1, CONNECT = 1, TRACE = 1 }

local function series_of(route, method, status)
    local rest = "\t" .. method .. "\t" .. status
    local series = (route ~= "" and route or NONE) .. rest
    if not store:get(series) then
        if #store:get_keys(MOST_SERIES) >= MOST_SERIES then
            return NONE .. rest
        end
        store:add(series, 0)
    end
    return series
end

--- Count a request at its end.
function M.count()
    local route, status, method = var.kubeloop_series, ngx.status, var.request_method
    local by_method = known[route]
    if not by_method then
        if known_count >= MOST_SERIES then
            known, known_count = {}, 0
        end
        by_method = {}
        known[route], known_count = by_method, known_count + 1
    end
    if not METHODS[method] then
        method = "OTHER"
    end
    local by_status = by_method[method]
    if not by_status then
        by_status = {}
        by_method[method] = by_status
    end
    local series = by_status[status]
    if not series then
        series = series_of(route, method, status)
        by_status[status] = series
    end
    store:incr(series, 1, 0)
    balancer.finish()
end

--- Show all counts: a list of objects with origin, host, path, backend, method, status and count.
function M.show()
    local found = {}
    for _, series in ipairs(store:get_keys(0)) do
        local origin, host, path, backend, method, status = series:match("^(.-)\t(.-)\t(.-)\t(.-)\t(%u+)\t(%d+)$")
        found[#found + 1] = {
            origin = origin, host = host, path = path, backend = backend, method = method, status = tonumber(status),
            count = store:get(series),
        }
    end
    ngx.header["Content-Type"] = "application/json"
    ngx.print(#found > 0 and cjson.encode(found) or "[]")
end

return M
