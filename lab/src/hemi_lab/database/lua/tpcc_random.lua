-- Random input as clauses 2.1.5, 2.1.6, 4.3.2 and 4.3.3 of the specification define it.

local bit = require("bit")

local random = {}

random.uniform = sysbench.rand.uniform

-- The run-time constants C of NURand. The one for last names differs between load and run by 85.
-- Clause 2.1.6.1 asks for 65 to 119, without 96 and 112.
local C_LAST_LOAD, C_LAST_RUN, C_CUSTOMER, C_ITEM = 123, 208, 511, 4093

local function nurand(a, c, low, high)
   local mixed = bit.bor(random.uniform(0, a), random.uniform(low, high))
   return (mixed + c) % (high - low + 1) + low
end

function random.customer_id(customers)
   return nurand(1023, C_CUSTOMER, 1, customers)
end

function random.item_id(items)
   return nurand(8191, C_ITEM, 1, items)
end

local syllables = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

-- The last name of a number from 0 to 999.
function random.last_name(number)
   return syllables[math.floor(number / 100) + 1] ..
      syllables[math.floor(number / 10) % 10 + 1] .. syllables[number % 10 + 1]
end

-- With fewer than 1000 customers in a district only that many names occur.
local function last_name_of(c, customers)
   return random.last_name(nurand(255, c, 0, math.min(999, customers - 1)))
end

function random.last_name_at_load(customers)
   return last_name_of(C_LAST_LOAD, customers)
end

function random.last_name_at_run(customers)
   return last_name_of(C_LAST_RUN, customers)
end

function random.percent(chance)
   return random.uniform(1, 100) <= chance
end

function random.letters(shortest, longest)
   return sysbench.rand.string(string.rep("@", random.uniform(shortest, longest or shortest)))
end

function random.digits(count)
   return sysbench.rand.string(string.rep("#", count))
end

-- Returns 26 to 50 letters. One text in ten has ORIGINAL somewhere.
function random.data()
   local text = random.letters(26, 50)
   if random.percent(10) then
      local at = random.uniform(0, #text - 8)
      text = text:sub(1, at) .. "ORIGINAL" .. text:sub(at + 9)
   end
   return text
end

function random.zip()
   return random.digits(4) .. "11111"
end

-- Streets, city, state and zip as a list of SQL values.
function random.address()
   return string.format("'%s','%s','%s','%s','%s'", random.letters(10, 20),
      random.letters(10, 20), random.letters(10, 20), random.letters(2), random.zip())
end

-- 0.0000 to `highest` ten-thousandths.
function random.rate(highest)
   return string.format("0.%04d", random.uniform(0, highest))
end

function random.permutation(count)
   local list = {}
   for i = 1, count do
      list[i] = i
   end
   for i = count, 2, -1 do
      local j = random.uniform(1, i)
      list[i], list[j] = list[j], list[i]
   end
   return list
end

-- Money is kept in whole cents.
function random.sql_of_cents(cents)
   return string.format("%d.%02d", math.floor(cents / 100), cents % 100)
end

return random
