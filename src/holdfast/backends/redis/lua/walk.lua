-- A walk over the members of some index sets in their common order, a bounded number at a time.
-- ARGV: the question as JSON, the bounds of the walk, and the keys of the sets.
local ask, low, high = cjson.decode(ARGV[1]), ARGV[2], ARGV[3]

-- Lua compares texts as the server's locale does. Where that is by bytes, it is the quickest way.
local bytewise = "B" < "a" and "Z" < "_" and "_" < "b" and "!" < "0" and "z" < "\195\169"

local function before(one, other)
  if bytewise then return one < other end
  for at = 1, math.min(#one, #other) do
    local left, right = byte(one, at), byte(other, at)
    if left ~= right then return left < right end
  end
  return #one < #other
end

local function id_of(member)
  if ask.style == 0 then return member end
  if ask.style == 2 then return sub(member, math.abs(byte(member) - 64) + 2) end
  local at = find(member, "\0", 1, true)
  while byte(member, at + 1) == 255 do at = find(member, "\0", at + 2, true) end
  return sub(member, at + 1)
end

local function fetch(source)
  local found
  if ask.down then
    found = call("ZREVRANGEBYLEX", source.key, source.from, low, "LIMIT", source.skip, ask.batch)
  else
    found = call("ZRANGEBYLEX", source.key, source.from, high, "LIMIT", source.skip, ask.batch)
  end
  source.found, source.at, source.skip = found, 1, 0
  if #found == ask.batch then source.from = "(" .. found[#found] else source.from = nil end
  return #found > 0
end

-- The source whose next member comes first. One that has come to its end is taken out.
local function first(sources)
  local best, place
  for at, source in ipairs(sources) do
    local head = source.found[source.at]
    if not best or (ask.down and before(best.found[best.at], head)) or (not ask.down and before(head, best.found[best.at])) then
      best, place = source, at
    end
  end
  return best, place
end

-- Visits members until `visit` says true or enough have been seen: gives the last one then, and "" after the end.
local function walk(visit, skip)
  local sources, budget = {}, ask.budget
  for at = 4, #ARGV do
    local source = {key = ARGV[at], from = ask.down and high or low, skip = skip or 0}
    if fetch(source) then sources[#sources + 1] = source end
  end
  while #sources > 0 do
    local source, place = first(sources)
    local member = source.found[source.at]
    source.at = source.at + 1
    if source.at > #source.found and not (source.from and fetch(source)) then table.remove(sources, place) end
    budget = budget - 1
    if visit(id_of(member)) or budget == 0 then return member end
  end
  return ""
end

-- The conditions that the index does not answer: {field, "in" | "out", set} or {field, comparison, value, style}.
local function prepare(tests)
  for _, test in ipairs(tests) do
    if test[4] then
      test[3] = order(test[3], test[4])
    else
      local set = {}
      for _, value in ipairs(test[3]) do set[value] = true end
      test[3] = set
    end
  end
  return tests
end

local tests = prepare(ask.tests)

local function compares(left, operator, right)
  if operator == "<" then return before(left, right) end
  if operator == "<=" then return not before(right, left) end
  if operator == ">" then return before(right, left) end
  return not before(left, right)
end

local function holds(fields)
  for _, test in ipairs(tests) do
    local field, operator, value = fields[test[1]], test[2], test[3]
    if operator == "in" then
      if not value[field] then return false end
    elseif operator == "out" then
      if value[field] then return false end
    elseif field == "null" or not compares(order(field, test[4]), operator, value) then
      return false
    end
  end
  return true
end
