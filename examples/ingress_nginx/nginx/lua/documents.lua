--- Documents that the controller has sent, decoded once for each version in each worker.
--
-- The shared dictionary holds them as JSON, and for each batch the keys that it changed ("log:VERSION"). "version" is written last: a worker
-- that reads a new version forgets the changed documents, so the first request after a batch was answered sees all of it.

local cjson = require "cjson.safe"

local gmatch, sub = string.gmatch, string.sub
local ERR, log = ngx.ERR, ngx.log
local is_exiting = ngx.worker.exiting

local M = {
    --- Grows with each change of documents; for caches of values that were made of them.
    epoch = 0,
}

local store
local version_seen
local decoded = {}
local prepared_by = {}

--- Use a shared dictionary. A new one gets the documents of the previous one, so that it can replace it without a gap.
function M.open(name, previous)
    store = ngx.shared[name]
    M.store = store
    local old = previous and ngx.shared[previous]
    if not old or store:get("logged") then
        return
    end
    for _, key in ipairs(old:get_keys(0)) do
        if key ~= "version" then
            store:set(key, old:get(key))
        end
    end
    store:set("version", old:get("version"))
end

--- Have documents whose keys begin with a letter prepared after they are decoded: `prepare(document, key)`.
function M.prepare(letter, prepare)
    prepared_by[letter] = prepare
end

local function forget_changes(version)
    M.epoch = M.epoch + 1
    for number = version_seen and version and version_seen + 1 or 0, version or 0 do
        local keys = store:get("log:" .. number)
        if not keys then
            decoded = {}
            break
        end
        for key in gmatch(keys, "[^\n]+") do
            decoded[key] = nil
        end
    end
    version_seen = version
end

--- Take over what has changed; false if the controller has not sent all documents yet. For the first phase of each request.
--
-- After a reload, a worker of the former configuration still answers requests that began before. New documents can refer to locations that
-- it does not have, so it keeps those that it knows.
function M.refresh()
    if version_seen and is_exiting() then
        return true
    end
    local version = store:get("version")
    if version ~= version_seen then
        forget_changes(version)
    end
    return version ~= nil
end

local function load(key)
    local text = store:get(key)
    local document = false
    if text then
        local problem
        document, problem = cjson.decode(text)
        if document then
            document = prepared_by[sub(key, 1, 1)](document, key)
        else
            log(ERR, "document ", key, ": ", problem)
            document = false
        end
        decoded[key] = document
    end
    return document
end

--- Return a document, or false.
function M.get(key)
    return decoded[key] or load(key)
end

return M
