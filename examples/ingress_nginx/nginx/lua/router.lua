--- Finds the route of a request: host, path, conditions, weights. Runs once per request, before NGINX looks for a location.

local ffi = require "ffi"
local documents = require "documents"
local balancer = require "balancer"
local conditions = require "conditions"
local identifiers = require "identifiers"
local in_progress = require "in_progress"

local var = ngx.var
local re_match = ngx.re.match
local set_uri, set_args = ngx.req.set_uri, ngx.req.set_uri_args
local byte, find, sub = string.byte, string.find, string.sub
local random, concat = math.random, table.concat
local ERR, log = ngx.ERR, ngx.log

ffi.cdef "void *memrchr(const void *text, int byte, size_t length);"
local C, cast, char_pointer = ffi.C, ffi.cast, ffi.typeof "const char *"

local SLASH = 47
local MISSING, UNAVAILABLE = "@kubeloop_missing", "@kubeloop_unavailable"
local REDIRECT, TOO_LARGE, FAILED = "@kubeloop_redirect", "@kubeloop_too_large", "@kubeloop_failed"
--- The request stays in the location that NGINX finds by itself. NGINX's `if` takes this text for false.
local STAY = "0"
local MOST_HOSTS = 10000

local M = {}
local blocks = {}
local limits = {}
local default_policy, default_name, default_backend
--- For requests of hosts that no server has.
local no_server

--- Return what the answer of the default backend is counted as.
local function default_target(host)
    return { key = default_backend, series = "\t" .. host .. "\t\t" .. default_name }
end

--- Set the names of the policy and of the backend that answer where no route does.
function M.defaults(policy, backend)
    default_policy, default_name, default_backend = policy, backend, "b:" .. backend
    no_server = default_target("")
end

--- Set the largest body in bytes for each policy that has a location; false: it has no limit.
function M.limits(sizes)
    limits = sizes
end

--- Add a server block.
-- @param name Its name.
-- @param groups Its groups of hosts.
-- @param policy The policy of its location.
-- @param limit The largest body in bytes that this location takes; false: it has no limit.
function M.block(name, groups, policy, limit)
    blocks[name] = { groups = groups, policy = policy, limit = limit, hosts = {}, count = 0, epoch = 0 }
end

-- Documents

local function prepare_route(route, location, host)
    local targets, total = route.targets or {}, 0
    route.series = concat({ route.origin or "", host, location.path, "" }, "\t")
    for _, target in ipairs(targets) do
        target.key = "b:" .. target.backend
        target.weight = target.weight or 1
        target.series = route.series .. target.backend
        total = total + target.weight
    end
    route.targets, route.total = targets, total
    route.only = #targets == 1 and total > 0 and targets[1] or nil
end

local function prepare_locations(locations, host)
    local by_path = {}
    for _, location in ipairs(locations or {}) do
        by_path[location.path] = location
        for _, route in ipairs(location.routes) do
            prepare_route(route, location, host)
        end
        local first = location.routes[1]
        location.only = #location.routes == 1 and not first.conditions and first or nil
    end
    return by_path
end

local function prepare_server(server)
    server.longest = 0
    for _, location in ipairs(server.prefix or {}) do
        if #location.path > server.longest then
            server.longest = #location.path
        end
    end
    server.exact = prepare_locations(server.exact, server.host)
    server.prefix = prepare_locations(server.prefix, server.host)
    prepare_locations(server.ordered, server.host)
    server.unmatched = default_target(server.host or "")
    return server
end

documents.prepare("s", prepare_server)

-- Hosts

local function named(groups, name)
    for index = 1, #groups do
        local server = documents.get("s:" .. groups[index] .. ":" .. name)
        if server then
            return server
        end
    end
    return false
end

local function look_up(groups, host)
    local server = named(groups, host)
    local dot, labels = find(host, ".", 1, true), 1
    while not server and dot do
        server = named(groups, "*" .. sub(host, dot))
        if server and server.one_label and labels > 1 then
            server = false
        end
        dot, labels = find(host, ".", dot + 1, true), labels + 1
    end
    return server or named(groups, "_")
end

local function find_server(block, host)
    -- Hosts come from clients: a full table is dropped, so that it cannot grow without limit.
    if block.epoch ~= documents.epoch or block.count >= MOST_HOSTS then
        block.epoch, block.hosts, block.count = documents.epoch, {}, 0
    end
    local server = block.hosts[host]
    if server == nil then
        server = look_up(block.groups, host)
        block.hosts[host] = server
        block.count = block.count + 1
    end
    return server
end

--- Return the server of a host in a block, or false. For certificates, too.
function M.server(block, host)
    return find_server(blocks[block], host)
end

-- Paths
--
-- The usual ways have no loop: LuaJIT does not compile a function from its start whose calls reach a loop that it has not unrolled yet.

local function choose_route(location)
    if location.only then
        return location.only
    end
    local routes = location.routes
    for index = 1, #routes do
        local route = routes[index]
        if not route.conditions or conditions.hold(route.conditions) then
            return route
        end
    end
    return nil
end

local function matches_prefix(prefix, path)
    local length = #prefix
    local following = byte(path, length + 1)
    return (following == SLASH or not following) and sub(path, 1, length) == prefix
end

local function find_in_order(ordered, path)
    for index = 1, #ordered do
        local location = ordered[index]
        local captures, problem
        if location.pattern then
            captures, problem = re_match(path, location.pattern, "ijo")
            if problem then
                -- It may match: another location may lack its protection.
                log(ERR, "path ", location.pattern, ": ", problem)
                return FAILED
            end
        else
            captures = matches_prefix(location.path, path)
        end
        local route = captures and choose_route(location)
        if route then
            return route, location, captures
        end
    end
    return nil
end

--- Return the length of a path up to the last slash among its first bytes, without it; 0 if there is no other slash than the first.
local function parent_of(path, length)
    local slash = C.memrchr(path, SLASH, length)
    if slash == nil then
        return 0
    end
    return tonumber(cast(char_pointer, slash) - cast(char_pointer, path))
end

local function climb(prefixes, path, length)
    while true do
        local location = prefixes[sub(path, 1, length)]
        local route = location and choose_route(location)
        if route then
            return route, location
        end
        if length <= 0 then
            return nil
        end
        length = parent_of(path, length)
    end
end

--- Compare /a/b/c, /a/b, /a and the empty prefix with the table, from the longest prefix that it has.
local function find_by_prefix(server, path)
    local prefixes, length = server.prefix, #path
    local longest = server.longest
    if length > longest then
        -- A prefix ends before a slash.
        length = parent_of(path, longest + 1)
    end
    local location = prefixes[sub(path, 1, length)]
    local route = location and choose_route(location)
    if not route and length > 0 then
        length = parent_of(path, length)
        location = prefixes[sub(path, 1, length)]
        route = location and choose_route(location)
        if not route and length > 0 then
            return climb(prefixes, path, parent_of(path, length))
        end
    end
    if route then
        return route, location
    end
    return nil
end

local function find_route(server, path)
    local location = server.exact[path]
    local route = location and choose_route(location)
    if route then
        return route, location
    end
    if server.ordered then
        return find_in_order(server.ordered, path)
    end
    return find_by_prefix(server, path)
end

-- Answers

local function unchanged(text)
    return text
end

local function fill(template, captures, encode)
    local pieces = {}
    for index = 1, #template do
        local piece = template[index]
        pieces[index] = type(piece) == "number" and encode(captures and captures[piece] or "") or piece
    end
    return concat(pieces)
end

local function rewrite(change, location, captures, path)
    local new = fill(change.path, captures, unchanged)
    if change.prefix then
        new = new .. sub(path, #location.path + 1)
    end
    if byte(new) ~= SLASH then
        new = "/" .. new
    end
    -- NGINX encodes what the path needs when it passes the request on (a named location is an internal redirect).
    set_uri(new, false, true)
    if change.args then
        local args = var.args
        set_args(fill(change.args, captures, ngx.escape_uri) .. (args and args ~= "" and "&" .. args or ""))
    end
end

--- Return the path after the prefix of a location, as the client has sent it.
local function rest_of_path(prefix)
    local sent = var.request_uri
    local stop = (find(sent, "?", 1, true) or #sent + 1) - 1
    if byte(sent, #prefix + 1) == SLASH and sub(sent, 1, #prefix) == prefix then
        return sub(sent, #prefix + 1, stop)
    end
    return ""
end

--- Return the target with the endpoint of the client's cookie, as ingress-nginx does before it compares weights.
local function stuck_target(targets)
    for index = 1, #targets do
        local backend = documents.get(targets[index].key)
        local token = backend and backend.affinity and conditions.cookie(backend.affinity.pattern)
        if token and backend.by_token[token] then
            return targets[index]
        end
    end
end

local function choose_target(route)
    if route.only then
        return route.only
    end
    if route.total <= 0 then
        return nil
    end
    local targets, point = route.targets, random(route.total)
    local stuck = stuck_target(targets)
    if stuck then
        return stuck
    end
    for index = 1, #targets do
        point = point - targets[index].weight
        if point <= 0 then
            return targets[index]
        end
    end
end

local function exceeds(length, limit)
    return length and limit and tonumber(length) > limit
end

local function answer_default(block, target)
    in_progress.add(target)
    local backend = documents.get(default_backend)
    if not (backend and backend.serves) then
        return MISSING
    end
    local limit = limits[default_policy]
    if limit ~= block.limit and exceeds(var.content_length, limit) then
        return TOO_LARGE
    end
    if backend.name then
        var.kubeloop_target = backend.name
        return default_policy .. "_dns"
    end
    return default_policy
end

--- Whether NGINX must compare the length of the body with the policy's limit while it reads the body, which needs its location.
local function has_unknown_length()
    return var.http_transfer_encoding ~= nil or var.server_protocol == "HTTP/2.0"
end

local function follow(block, route, location, captures, path)
    local target = choose_target(route)
    local policy = target and target.policy or route.policy
    local limit, stays = limits[policy], policy == block.policy
    if limit == nil then
        -- The document came with a reload, and this worker is of the former configuration.
        return UNAVAILABLE
    end
    -- NGINX compares the length with the limit of the location that it finds by itself, which may be larger than that of the policy.
    if limit ~= block.limit then
        local length = var.content_length
        if exceeds(length, limit) then
            in_progress.add(target or route)
            return TOO_LARGE
        end
        stays = stays and (length or not has_unknown_length())
    end
    if not target then
        in_progress.add(route)
        var.kubeloop_unserved = "1"
    else
        in_progress.add(target)
        local backend = documents.get(target.key)
        if not (backend and backend.serves) then
            if target.key == default_backend then
                return MISSING
            end
            var.kubeloop_unserved = "1"
        elseif backend.affinity or backend.name then
            if backend.affinity then
                balancer.stick(backend)
            end
            if backend.name then
                var.kubeloop_target = backend.name
                policy, stays = policy .. "_dns", false
            end
        end
    end
    if route.rewrite then
        rewrite(route.rewrite, location, captures, path)
        stays = false
    end
    if route.rest then
        local rest = rest_of_path(location.path)
        var.kubeloop_rest = rest == "" and route.rest or rest
    end
    return stays and STAY or policy
end

--- Choose the location of a request in a block, and set the variables that it needs.
function M.route(name)
    -- A subrequest, as for external authentication, has the variables of its request.
    if ngx.is_subrequest then
        return var.kubeloop_location
    end
    -- A request that a backend leads to another path (X-Accel-Redirect) has an identifier.
    if not in_progress.get() then
        identifiers.set()
    end
    if not documents.refresh() then
        return UNAVAILABLE
    end
    local block = blocks[name]
    local server = find_server(block, var.host)
    if not server then
        return answer_default(block, no_server)
    end
    if server.redirect then
        var.kubeloop_target = server.redirect
        return REDIRECT
    end
    local path = var.uri
    local route, location, captures = find_route(server, path)
    if not route then
        return answer_default(block, server.unmatched)
    end
    if route == FAILED then
        return FAILED
    end
    return follow(block, route, location, captures, path)
end

return M
