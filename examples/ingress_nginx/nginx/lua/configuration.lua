--- The part of the status server that receives documents from the controller and shows which ones there are.

local cjson = require "cjson.safe"

local documents = require "documents"

local concat = table.concat

--- Batches whose keys are known; a worker without requests for longer decodes all documents again.
local KEPT_LOGS = 1000

local M = {}

local function answer(status, text)
    ngx.status = status
    ngx.print(text)
    return ngx.exit(status)
end

local function read_body()
    ngx.req.read_body()
    local body = ngx.req.get_body_data()
    local path = not body and ngx.req.get_body_file()
    if path then
        local file = io.open(path, "rb")
        body = file and file:read("*a")
        if file then
            file:close()
        end
    end
    return body or ""
end

--- Return a batch, or nil and the problem.
local function read_batch()
    local batch, problem = cjson.decode(read_body())
    if type(batch) ~= "table" or type(batch.put) ~= "table" or type(batch.delete) ~= "table" then
        return nil, problem or "a batch has the fields put and delete"
    end
    for key, text in pairs(batch.put) do
        if type(key) ~= "string" or not ngx.re.find(key, "^[sbc]:[^\\x00-\\x1f]*$", "jo") then
            return nil, "a key does not begin with s:, b: or c:"
        end
        if type(text) ~= "string" or type(cjson.decode(text)) ~= "table" then
            return nil, "document " .. key .. " is not the text of a JSON object"
        end
    end
    return batch
end

local function store_batch(batch)
    local store, keys = documents.store, {}
    for key, text in pairs(batch.put) do
        -- Without "safe" the dictionary would drop other documents.
        local done, problem = store:safe_set(key, text)
        if not done then
            return nil, problem
        end
        keys[#keys + 1] = key
    end
    for _, key in ipairs(batch.delete) do
        store:delete(key)
        keys[#keys + 1] = key
    end
    local number = (store:get("logged") or 0) + 1
    local done, problem = store:safe_set("log:" .. number, concat(keys, "\n"))
    if not done then
        return nil, problem
    end
    store:delete("log:" .. (number - KEPT_LOGS))
    store:set("logged", number)
    if batch.complete then
        store:set("version", number)
    end
    return number
end

-- Store a batch of documents. 201: with the number of the batch. 400: not a batch. 409: not the batch after the last one.
-- 507: the dictionary is full.
local function receive()
    local batch, problem = read_batch()
    if not batch then
        return answer(400, problem)
    end
    local last = documents.store:get("logged") or 0
    if batch.after ~= last then
        return answer(409, "the last batch is " .. last)
    end
    local number
    number, problem = store_batch(batch)
    if not number then
        return answer(507, problem)
    end
    return answer(201, tostring(number))
end

-- Show the number of the last batch and the keys of all documents.
local function show()
    local store, keys = documents.store, {}
    for _, key in ipairs(store:get_keys(0)) do
        if key:byte(2) == 58 then
            keys[#keys + 1] = key
        end
    end
    ngx.header["Content-Type"] = "application/json"
    -- cjson takes an empty table for an object.
    ngx.print('{"last":', store:get("logged") or 0, ',"keys":', #keys > 0 and cjson.encode(keys) or "[]", "}")
end

--- Answer a request of the controller: POST stores a batch, GET shows the stored keys.
function M.serve()
    local method = ngx.req.get_method()
    if method == "POST" then
        return receive()
    elseif method == "GET" then
        return show()
    end
    return answer(405, "only GET and POST")
end

return M
