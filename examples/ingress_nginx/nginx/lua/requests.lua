--- Counts requests by route (its object, host, path and backend), method and status.
--
-- The dictionary has a number for each series, and the count under that number: keys are hashed for each request, and names are long.

local cjson = require "cjson.safe"
local balancer = require "balancer"
local in_progress = require "in_progress"

local store = ngx.shared.kubeloop_requests
local get_method = ngx.req.get_method

--- More series than this, and those that do not fit into the dictionary, are counted as one.
local MOST_SERIES = 20000
--- Bytes of the dictionary for the series that count all others.
local RESERVE = 256 * 1024
local LAST = "last"

local M = {}
--- Requests without a route: NGINX answers malformed requests before they are routed.
local NONE = { series = "\t\t\t" }
--- Clients can send any method.
local METHODS = { GET = 1, HEAD = 1, POST = 1, PUT = 1, PATCH = 1, DELETE = 1, OPTIONS = 1, CONNECT = 1, TRACE = 1 }

--- Return the key of the count of a new series; nil if it does not fit. Nothing that is stored is ever dropped for it ("safe").
local function add_count(series)
    local number = store:incr(LAST, 1, 0)
    local key = "n" .. number
    if not store:safe_add(key, 0) then
        return nil
    end
    if store:safe_add(series, number) then
        return key
    end
    store:delete(key)
    -- Another worker may have been faster.
    number = store:get(series)
    return number and "n" .. number
end

--- Return the key of the count of a series; nil if it is new and there are too many.
local function find_count(series, most, reserve)
    local number = store:get(series)
    if number then
        return "n" .. number
    end
    if (store:get(LAST) or 0) >= most or store:free_space() < reserve then
        return nil
    end
    return add_count(series)
end

local function count_of(target, method, status)
    local rest = "\t" .. method .. "\t" .. status
    return find_count(target.series .. rest, MOST_SERIES, RESERVE) or find_count(NONE.series .. rest, math.huge, 0)
end

--- Count a request at its end.
function M.count()
    local target, status, method = in_progress.remove() or NONE, ngx.status, get_method()
    if not METHODS[method] then
        method = "OTHER"
    end
    local counts = target.counts
    if not counts then
        counts = {}
        target.counts = counts
    end
    local by_status = counts[method]
    if not by_status then
        by_status = {}
        counts[method] = by_status
    end
    local key = by_status[status]
    if not key then
        key = count_of(target, method, status)
        by_status[status] = key
    end
    if key then
        store:incr(key, 1)
    end
    balancer.finish()
end

--- Show all counts: a list of objects with origin, host, path, backend, method, status and count.
function M.show()
    local found = {}
    for _, series in ipairs(store:get_keys(0)) do
        local origin, host, path, backend, method, status = series:match("^(.-)\t(.-)\t(.-)\t(.-)\t(%u+)\t(%d+)$")
        if origin then
            found[#found + 1] = {
                origin = origin, host = host, path = path, backend = backend, method = method, status = tonumber(status),
                count = store:get("n" .. store:get(series)) or 0,
            }
        end
    end
    ngx.header["Content-Type"] = "application/json"
    ngx.print(#found > 0 and cjson.encode(found) or "[]")
end

return M
