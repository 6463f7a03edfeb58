--- Answers TLS handshakes with the certificate of the server that the client names.

local ssl = require "ngx.ssl"
local documents = require "documents"
local router = require "router"

local lower = string.lower
local ERR, log = ngx.ERR, ngx.log

--- The default certificate of the cluster; without one, that of nginx.conf.
local DEFAULT = "c:"

local M = {}

local function prepare_certificate(document, key)
    local chain, problem = ssl.parse_pem_cert(document.chain)
    local private
    if chain then
        private, problem = ssl.parse_pem_priv_key(document.key)
    end
    if not private then
        log(ERR, "certificate ", key, ": ", problem)
        return {}
    end
    return { chain = chain, private = private }
end

documents.prepare("c", prepare_certificate)

--- Set the certificate of a handshake in a server block.
function M.choose(block)
    if not documents.refresh() then
        return
    end
    local name = ssl.server_name()
    local server = name and router.server(block, lower(name))
    local found = server and server.certificate and documents.get("c:" .. server.certificate)
    if not (found and found.chain) then
        found = documents.get(DEFAULT)
    end
    if not (found and found.chain) then
        return
    end
    ssl.clear_certs()
    local done, problem = ssl.set_cert(found.chain)
    if done then
        done, problem = ssl.set_priv_key(found.private)
    end
    if not done then
        log(ERR, "the certificate for ", name or "clients without a name", " does not work: ", problem)
        return ngx.exit(ngx.ERROR)
    end
end

return M
