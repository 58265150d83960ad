"""The steps that Redis does as one. Lua 5.1; numbers are doubles, whole ones exact to 2^53.

Every scope has four keys: a hash of requests and one of tokens, each by the second (so that a minute is what the fields
of 61 seconds add up to), a sorted set of what runs (member: grant, score: when it is given up), and a number of
billionths of a dollar in the present period. All keys share one hash tag, and so one slot of a cluster.
"""

__all__ = ["RESERVE", "SETTLE"]

RESERVE = """
-- ARGV: now (0: this server's clock), grant, lease in s, then for each scope:
-- rpm, tpm, tokens, prompt tokens, parallel, budget, nano, end of the period (-1: no limit)
-- gives: taken (1 or 0), second, place of the scope in the way, what is in the way, ms to wait, then for each scope
-- requests and tokens of the minute. 'unknown' is in the way of a budget of whose period nothing is known here
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local second = math.floor(now)
local scopes = #KEYS / 4

local function minute(key)
  local all = redis.call('HGETALL', key)
  local parts, total, old = {}, 0, {}
  for i = 1, #all, 2 do
    local at, amount = tonumber(all[i]), tonumber(all[i + 1])
    if second - at >= 61 then
      old[#old + 1] = all[i]
    else
      parts[#parts + 1] = {at, amount}
      total = total + amount
    end
  end
  if #old > 0 then redis.call('HDEL', key, unpack(old)) end
  return parts, total
end

local function wait(parts, total, amount, limit)
  table.sort(parts, function(a, b) return a[1] < b[1] end)
  for _, part in ipairs(parts) do
    total = total - part[2]
    if total + amount <= limit then return math.ceil((part[1] + 61 - now) * 1000) end
  end
  return 0
end

local counts, found = {}, nil
for place = 1, scopes do
  local key, arg = (place - 1) * 4, 3 + (place - 1) * 8
  local rpm, tpm, tokens = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  local prompt, parallel = tonumber(ARGV[arg + 4]), tonumber(ARGV[arg + 5])
  local budget, nano = tonumber(ARGV[arg + 6]), tonumber(ARGV[arg + 7])
  local requests, used = 0, 0
  local request_parts, token_parts = {}, {}
  if rpm >= 0 then request_parts, requests = minute(KEYS[key + 1]) end
  if tpm >= 0 then token_parts, used = minute(KEYS[key + 2]) end
  counts[#counts + 1] = requests
  counts[#counts + 1] = used
  if not found then
    if rpm >= 0 and requests >= rpm then
      found = {place, 'requests', wait(request_parts, requests, 1, rpm)}
    elseif tpm >= 0 and prompt > tpm then
      found = {place, 'prompt', -1}
    elseif tpm >= 0 and used + tokens > tpm then
      found = {place, 'tokens', wait(token_parts, used, tokens, tpm)}
    elseif budget >= 0 and redis.call('EXISTS', KEYS[key + 4]) == 0 then
      found = {place, 'unknown', -1}
    elseif budget >= 0 and tonumber(redis.call('GET', KEYS[key + 4])) + nano > budget then
      found = {place, 'budget', math.ceil((tonumber(ARGV[arg + 8]) - now) * 1000)}
    elseif parallel >= 0 then
      redis.call('ZREMRANGEBYSCORE', KEYS[key + 3], '-inf', now)
      if redis.call('ZCARD', KEYS[key + 3]) >= parallel then found = {place, 'parallel', -1} end
    end
  end
end
if found then return {0, second, found[1], found[2], found[3], unpack(counts)} end

for place = 1, scopes do
  local key, arg = (place - 1) * 4, 3 + (place - 1) * 8
  if tonumber(ARGV[arg + 1]) >= 0 then
    redis.call('HINCRBY', KEYS[key + 1], second, 1)
    redis.call('EXPIRE', KEYS[key + 1], 62)
    counts[place * 2 - 1] = counts[place * 2 - 1] + 1
  end
  if tonumber(ARGV[arg + 2]) >= 0 then
    redis.call('HINCRBY', KEYS[key + 2], second, ARGV[arg + 3])
    redis.call('EXPIRE', KEYS[key + 2], 62)
    counts[place * 2] = counts[place * 2] + tonumber(ARGV[arg + 3])
  end
  if tonumber(ARGV[arg + 5]) >= 0 then
    redis.call('ZADD', KEYS[key + 3], now + tonumber(ARGV[3]), ARGV[2])
    redis.call('EXPIRE', KEYS[key + 3], ARGV[3])
  end
  if tonumber(ARGV[arg + 6]) >= 0 then
    redis.call('INCRBY', KEYS[key + 4], ARGV[arg + 7])
  end
end
return {1, second, 0, '', 0, unpack(counts)}
"""

SETTLE = """
-- ARGV: now (0: this server's clock), grant, second of the reservation, then for each scope:
-- change of tokens, change of nano (0: none, or no such limit)
local now = tonumber(ARGV[1])
if now == 0 then now = tonumber(redis.call('TIME')[1]) end
local second = math.floor(now)
for place = 1, #KEYS / 4 do
  local key, arg = (place - 1) * 4, 3 + (place - 1) * 2
  redis.call('ZREM', KEYS[key + 3], ARGV[2])
  local tokens = tonumber(ARGV[arg + 1])
  if tokens > 0 then
    redis.call('HINCRBY', KEYS[key + 2], second, tokens)
    redis.call('EXPIRE', KEYS[key + 2], 62)
  elseif tokens < 0 and redis.call('HEXISTS', KEYS[key + 2], ARGV[3]) == 1 then
    local left = redis.call('HINCRBY', KEYS[key + 2], ARGV[3], tokens)
    if left < 0 then redis.call('HSET', KEYS[key + 2], ARGV[3], 0) end -- it was reserved in data that are lost
  end
  local nano = tonumber(ARGV[arg + 2])
  if nano ~= 0 and redis.call('EXISTS', KEYS[key + 4]) == 1 then -- else the database will tell
    local spent = redis.call('INCRBY', KEYS[key + 4], ARGV[arg + 2])
    if spent < 0 then redis.call('DECRBY', KEYS[key + 4], spent) end
  end
end
return 1
"""
