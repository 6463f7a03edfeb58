--- Counts requests by route (its object, host, path and backend) and status.

local cjson = require "cjson.safe"
local balancer = require "balancer"

local store = ngx.shared.kubeloop_requests
local var = ngx.var

--- More series than this are counted as one, so that they cannot fill the dictionary.
local MOST_SERIES = 20000
--- Route of requests without one: NGINX answers malformed requests before they are routed.
local NONE = "\t\t\t"

local M = {}
--- Series by route and status.
local known, known_count = {}, 0

local function series_of(route, status)
    local series = (route ~= "" and route or NONE) .. "\t" .. status
    if not store:get(series) then
        if #store:get_keys(MOST_SERIES) >= MOST_SERIES then
            return NONE .. "\t" .. status
        end
        store:add(series, 0)
    end
    return series
end

--- Count a request at its end.
function M.count()
    local route, status = var.kubeloop_series, ngx.status
    local by_status = known[route]
    if not by_status then
        if known_count >= MOST_SERIES then
            known, known_count = {}, 0
        end
        by_status = {}
        known[route], known_count = by_status, known_count + 1
    end
    local series = by_status[status]
    if not series then
        series = series_of(route, status)
        by_status[status] = series
    end
    store:incr(series, 1, 0)
    balancer.finish()
end

--- Show all counts: a list of objects with origin, host, path, backend, status and count.
function M.show()
    local found = {}
    for _, series in ipairs(store:get_keys(0)) do
        local origin, host, path, backend, status = series:match("^(.-)\t(.-)\t(.-)\t(.-)\t(%d+)$")
        found[#found + 1] = {
            origin = origin, host = host, path = path, backend = backend, status = tonumber(status), count = store:get(series)
        }
    end
    ngx.header["Content-Type"] = "application/json"
    ngx.print(#found > 0 and cjson.encode(found) or "[]")
end

return M
