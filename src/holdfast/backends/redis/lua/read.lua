-- What every script shares: how a document is taken apart, and how values are ordered.
local find, sub, byte, char, gsub, concat = string.find, string.sub, string.byte, string.char, string.gsub, table.concat
local call, unpack = redis.call, unpack
local CHUNK = 4000 -- what `unpack` takes at once, with room to spare

-- The first `n` fields of a document, or all of them, as JSON texts. They are apart by "\n,", and JSON has no raw newline.
local function split(doc, n)
  local fields, from, at = {}, 2, 0
  while at ~= n do
    at = at + 1
    local stop = find(doc, "\n", from, true)
    if not stop then
      fields[at] = sub(doc, from, -2)
      break
    end
    fields[at] = sub(doc, from, stop - 1)
    from = stop + 2
  end
  -- An older document has fewer fields.
  for missing = at + 1, n or 0 do fields[missing] = "null" end
  return fields
end

local function complement(digit) return 9 - digit end

-- Bytes that sort as the value does: a number starts with its length, a text ends with a zero.
-- Style 0 is the id, which stands for itself; 1 a text; 2 a number.
local function order(field, style)
  if style == 2 then
    if byte(field) ~= 45 then return char(64 + #field) .. field end
    local digits = gsub(sub(field, 2), "%d", complement)
    return char(64 - #digits) .. digits
  end
  local text = sub(field, 2, -2)
  if find(text, "\\", 1, true) then text = cjson.decode("[" .. field .. "]")[1] end
  if style == 0 then return text end
  if find(text, "\0", 1, true) then text = gsub(text, "%z", "\0\255") end
  return text .. "\0"
end

local function values(places, fields)
  local found = {}
  for i = 1, #places do found[i] = fields[places[i]] end
  return concat(found, ",")
end
