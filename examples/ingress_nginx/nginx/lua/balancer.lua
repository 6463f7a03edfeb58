--- Chooses an endpoint of a backend: round robin, fewest requests, hash, or cookie. Workers count by themselves.

local peers = require "ngx.balancer"
local bit = require "bit"
local documents = require "documents"
local conditions = require "conditions"
local in_progress = require "in_progress"

local var, exit = ngx.var, ngx.exit
local set_current_peer, set_more_tries, last_failure = peers.set_current_peer, peers.set_more_tries, peers.get_last_failure
local crc32, md5 = ngx.crc32_short, ngx.md5
local band, bxor, rshift, lshift, tobit = bit.band, bit.bxor, bit.rshift, bit.lshift, bit.tobit
local find, gmatch, sub, concat = string.find, string.gmatch, string.sub, table.concat
local random = math.random

local M = {}
--- Numbers of requests in progress by endpoint, of backends that choose by them.
local busy = {}
--- Whether there ever was one.
local counts_busy = false

local function prepare_backend(backend)
    local endpoints = backend.endpoints or {}
    backend.endpoints, backend.count = endpoints, #endpoints
    -- A DNS name, which NGINX resolves, takes the place of endpoints.
    backend.serves = #endpoints > 0 or backend.name ~= nil
    backend.by_token = {}
    for index = 1, #endpoints do
        local endpoint = endpoints[index]
        endpoint.name = endpoint.address .. ":" .. endpoint.port
        endpoint.seed = crc32(endpoint.name)
        if backend.affinity then
            endpoint.token = md5(endpoint.name)
            backend.by_token[endpoint.token] = endpoint
        end
    end
    -- Workers and replicas begin at different endpoints, so that the first ones do not get all requests after a change.
    backend.turn = backend.count > 0 and random(backend.count) or 0
    return backend
end

documents.prepare("b", prepare_backend)

local function next_in_turn(backend)
    local turn = backend.turn
    turn = turn < backend.count and turn + 1 or 1
    backend.turn = turn
    return backend.endpoints[turn]
end

local function least_busy(backend)
    local best, fewest
    for _ = 1, backend.count do
        local endpoint = next_in_turn(backend)
        local count = busy[endpoint.name] or 0
        if not best or count < fewest then
            best, fewest = endpoint, count
        end
    end
    -- The next search begins after the chosen endpoint, so that equally busy ones take turns.
    next_in_turn(backend)
    return best
end

local function multiply(value, factor)
    -- A product of 64 bits does not fit into a number: the halves are multiplied.
    local low = band(value, 0xffff) * factor
    local high = band(rshift(value, 16) * factor, 0xffff)
    return tobit(low + lshift(high, 16))
end

local function mix(value)
    value = multiply(bxor(value, rshift(value, 16)), 0x45d9f3b)
    value = multiply(bxor(value, rshift(value, 15)), 0x119de1f)
    return bxor(value, rshift(value, 16))
end

--- Rendezvous hashing: when an endpoint goes, only its own keys move.
local function by_hash(backend)
    local parts, pieces = backend.hash_by, {}
    for index = 1, #parts do
        local part = parts[index]
        pieces[index] = part.text or var[part.variable] or ""
    end
    local key = crc32(concat(pieces))
    local endpoints = backend.endpoints
    local best, highest = nil, -math.huge
    for index = 1, backend.count do
        local score = mix(bxor(key, endpoints[index].seed))
        if score > highest then
            best, highest = endpoints[index], score
        end
    end
    return best
end

local function choose(backend)
    if backend.affinity then
        local endpoint = backend.by_token[var.kubeloop_endpoint]
        if endpoint then
            return endpoint
        end
    elseif backend.hash_by then
        return by_hash(backend)
    elseif backend.least_busy then
        return least_busy(backend)
    end
    return next_in_turn(backend)
end

local function not_tried(backend)
    local tried = " " .. (var.upstream_addr or "") .. ","
    for _ = 1, backend.count do
        local endpoint = next_in_turn(backend)
        if not find(tried, " " .. endpoint.name .. ",", 1, true) then
            return endpoint
        end
    end
    return next_in_turn(backend)
end

local function set_cookie(affinity, endpoint)
    local parts = { affinity.cookie, "=", endpoint.token, affinity.attributes }
    if affinity.expires then
        parts[#parts + 1] = "; Expires=" .. ngx.cookie_time(ngx.time() + affinity.expires)
    end
    if affinity.secure or (affinity.secure == nil and var.kubeloop_is_https == "1") then
        parts[#parts + 1] = "; Secure"
    end
    var.kubeloop_cookie = concat(parts)
end

--- Find the endpoint of the client's cookie, or choose one and give the client a cookie.
function M.stick(backend)
    local affinity = backend.affinity
    local token = conditions.cookie(affinity.pattern)
    if token and backend.by_token[token] then
        var.kubeloop_endpoint = token
        return
    end
    local endpoint = next_in_turn(backend)
    var.kubeloop_endpoint = endpoint.token
    set_cookie(affinity, endpoint)
end

--- Give NGINX the endpoint of a request, or the next one after a failure. `key`: of the backend; nil: that of the request's target.
function M.balance(key)
    if not key then
        local target = in_progress.get()
        key = target and target.key
    end
    local backend = key and documents.get(key)
    if not backend or backend.count == 0 then
        return exit(503)
    end
    local endpoint
    if backend.count == 1 then
        endpoint = backend.endpoints[1]
    elseif last_failure() then
        endpoint = not_tried(backend)
        if backend.affinity and backend.affinity.change_on_failure then
            set_cookie(backend.affinity, endpoint)
        end
    else
        endpoint = choose(backend)
        -- NGINX reduces the number to that of the policy (proxy_next_upstream_tries).
        set_more_tries(backend.count - 1)
    end
    -- The end of a copy of a request is not seen (`finish`).
    if backend.least_busy and not ngx.is_subrequest then
        busy[endpoint.name] = (busy[endpoint.name] or 0) + 1
        counts_busy = true
    end
    local done, problem = set_current_peer(endpoint.address, endpoint.port)
    if not done then
        ngx.log(ngx.ERR, "endpoint ", endpoint.name, ": ", problem)
        return exit(502)
    end
end

-- Apart from `finish`, which LuaJIT compiles: it has no loop.
local function release()
    for name in gmatch(var.upstream_addr or "", "[^, ]+") do
        local count = busy[name]
        if count then
            busy[name] = count > 1 and count - 1 or nil
        end
    end
end

--- Count the end of a request.
function M.finish()
    if counts_busy then
        release()
    end
end

return M
