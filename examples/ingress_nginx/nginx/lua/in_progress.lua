--- Remembers the target of each request in progress, from its route to its end, for all phases of the request.
--
-- A variable of NGINX would be copied and looked up by its name in each phase; `ngx.ctx` ends at an internal redirect.

local ffi = require "ffi"
local get_request = require("resty.core.base").get_request

local cast, address_type = ffi.cast, ffi.typeof "uintptr_t"

local M = {}
--- By the address of the request's structure. A new request at the same address replaces the target at its route.
local targets = {}

-- Each function finds the address by itself: LuaJIT would try to compile a common one before its callers, and give them up.

--- Remember the target of the present request, or its route if that has no target.
function M.add(target)
    targets[tonumber(cast(address_type, get_request()))] = target
end

--- Return the target of the present request, or nil.
function M.get()
    return targets[tonumber(cast(address_type, get_request()))]
end

--- Forget the present request, and return its target, or nil.
function M.remove()
    local address = tonumber(cast(address_type, get_request()))
    local target = targets[address]
    targets[address] = nil
    return target
end

return M
