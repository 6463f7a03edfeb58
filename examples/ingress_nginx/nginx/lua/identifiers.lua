--- Makes identifiers of requests: 32 hexadecimal digits, as NGINX's `$request_id`. They are unique, not secret.
--
-- NGINX asks OpenSSL for random bytes for each request, which takes as long as the whole search for a route.

local ffi = require "ffi"
local bit = require "bit"

local get_request = require("resty.core.base").get_request

local band, bxor, rshift = bit.band, bit.bxor, bit.rshift
local random = math.random
-- The function of `ngx.var`, which declares it: it would have Lua keep each identifier as a string, and collect it later.
local set_variable = ffi.C.ngx_http_lua_ffi_var_set

local RANGE = 4294967296
local NAME = "kubeloop_id"
local lower_name, problem = ffi.new("unsigned char[?]", #NAME), ffi.new("unsigned char[256]")
local problem_length = ffi.new "size_t[1]"

local M = {}
--- The digits of each byte, as an integer of two characters.
local octets = ffi.new "uint16_t[256]"
local digits = ffi.new "uint16_t[16]"
local text = ffi.cast("const unsigned char *", digits)
--- Random bits of this worker: sequences of `math.random` that are equal by chance give different identifiers.
local own = ffi.new "int32_t[4]"

for byte = 0, 255 do
    local pair = ffi.new("uint8_t[2]", ("%02x"):format(byte):byte(1, 2))
    octets[byte] = ffi.cast("uint16_t *", pair)[0]
end

--- Seed the generator of this worker with random bytes of the system. For the start of a worker.
function M.seed()
    local file = assert(io.open("/dev/urandom", "rb"))
    -- Buffers of the C library would read 4,096 bytes.
    file:setvbuf "no"
    local bytes = file:read(24)
    file:close()
    ffi.copy(own, bytes, 16)
    local seed = 0
    for index = 17, 22 do
        seed = seed * 256 + bytes:byte(index)
    end
    math.randomseed(seed)
end

--- Set the variable `kubeloop_id` of the present request to a new identifier.
function M.set()
    -- Without a function for each word: LuaJIT would try to compile it before its caller, and give both up.
    local bits = bxor(random() * RANGE, own[0])
    digits[0], digits[1] = octets[band(bits, 255)], octets[band(rshift(bits, 8), 255)]
    digits[2], digits[3] = octets[band(rshift(bits, 16), 255)], octets[rshift(bits, 24)]
    bits = bxor(random() * RANGE, own[1])
    digits[4], digits[5] = octets[band(bits, 255)], octets[band(rshift(bits, 8), 255)]
    digits[6], digits[7] = octets[band(rshift(bits, 16), 255)], octets[rshift(bits, 24)]
    bits = bxor(random() * RANGE, own[2])
    digits[8], digits[9] = octets[band(bits, 255)], octets[band(rshift(bits, 8), 255)]
    digits[10], digits[11] = octets[band(rshift(bits, 16), 255)], octets[rshift(bits, 24)]
    bits = bxor(random() * RANGE, own[3])
    digits[12], digits[13] = octets[band(bits, 255)], octets[band(rshift(bits, 8), 255)]
    digits[14], digits[15] = octets[band(rshift(bits, 16), 255)], octets[rshift(bits, 24)]
    problem_length[0] = 256
    local status = set_variable(get_request(), NAME, #NAME, lower_name, text, 32, problem, problem_length)
    if status ~= 0 then
        error(ffi.string(problem, problem_length[0]))
    end
end

return M
