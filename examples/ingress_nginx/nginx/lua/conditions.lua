--- Compares parts of a request with the conditions of a route.

local var = ngx.var
local re_find, re_match = ngx.re.find, ngx.re.match
local uri_args = ngx.req.get_uri_args
local ERR, log = ngx.ERR, ngx.log
local MOST_ARGUMENTS = 100

local M = {}

--- Return the value of a cookie, or nil. `pattern`: an expression whose first group is the value.
function M.cookie(pattern)
    local cookies = var.http_cookie
    local found = cookies and re_match(cookies, pattern, "jo")
    return found and found[1]
end

local function query(name)
    local value = uri_args(MOST_ARGUMENTS)[name]
    if type(value) == "table" then
        value = value[1]
    end
    return value == true and "" or value
end

local function part(condition)
    local source = condition.source
    if source == "header" then
        return var[condition.name]
    elseif source == "cookie" then
        return M.cookie(condition.name)
    elseif source == "query" then
        return query(condition.name)
    end
    return var.request_method
end

local function holds(condition)
    local value = part(condition)
    local equal
    if value == nil then
        equal = false
    elseif condition.regex then
        local start, _, problem = re_find(value, condition.value, "jo")
        equal = start ~= nil
        if problem then
            log(ERR, "condition ", condition.value, ": ", problem)
        end
    else
        equal = value == condition.value
    end
    return equal ~= (condition.negate or false)
end

--- Whether all conditions hold.
function M.hold(conditions)
    for index = 1, #conditions do
        if not holds(conditions[index]) then
            return false
        end
    end
    return true
end

return M
