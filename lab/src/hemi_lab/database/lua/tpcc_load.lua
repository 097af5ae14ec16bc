-- The initial rows (clause 4.3.3), in bulk inserts and in key order.
--
-- The work is cut into units (the items; a warehouse with its stock; a district), which the threads
-- share, so that even one warehouse loads in parallel.

local random = require("tpcc_random")

local loading = {}

local connection, scale

-- Inserts the values that `rows` passes to its argument, many to a statement.
local function fill(table_name, rows)
   connection:bulk_insert_init("INSERT INTO " .. table_name .. " VALUES")
   rows(function(...) connection:bulk_insert_next("(" .. string.format(...) .. ")") end)
   connection:bulk_insert_done()
end

local function load_items()
   fill("item", function(add)
      for id = 1, scale.items do
         add("%d,%d,'%s',%s,'%s'", id, random.uniform(1, 10000), random.letters(14, 24),
            random.sql_of_cents(random.uniform(100, 10000)), random.data())
      end
   end)
end

-- A customer has paid 10.00, so a district has taken that from each of its customers.
local function load_warehouse(warehouse)
   fill("warehouse", function(add)
      add("%d,'%s',%s,%s,%d.00", warehouse, random.letters(6, 10), random.address(),
         random.rate(2000), 10 * 10 * scale.customers)
   end)
   fill("stock", function(add)
      for item = 1, scale.items do
         -- 24 letters for each of the ten districts.
         local all = random.letters(240)
         local district = {}
         for i = 0, 9 do
            district[i + 1] = "'" .. all:sub(24 * i + 1, 24 * i + 24) .. "'"
         end
         add("%d,%d,%d,%s,0,0,0,'%s'", warehouse, item, random.uniform(10, 100),
            table.concat(district, ","), random.data())
      end
   end)
end

local function load_customers(warehouse, district)
   fill("customer", function(add)
      for id = 1, scale.customers do
         local name = id <= 1000 and random.last_name(id - 1)
            or random.last_name_at_load(scale.customers)
         add("%d,%d,%d,'%s','OE','%s',%s,'%s',NOW(),'%s',50000.00,%s,-10.00,10.00,1,0,'%s'",
            warehouse, district, id, random.letters(8, 16), name, random.address(),
            random.digits(16), random.percent(10) and "BC" or "GC", random.rate(5000),
            random.letters(300, 500))
      end
   end)
   fill("history", function(add)
      for id = 1, scale.customers do
         add("%d,%d,%d,%d,%d,NOW(),10.00,'%s'", id, district, warehouse, district, warehouse,
            random.letters(12, 24))
      end
   end)
end

-- One order for each customer, in random order. The last three of ten are not delivered yet (the
-- specification: 900 of 3000).
local function load_orders(warehouse, district)
   local customer = random.permutation(scale.customers)
   local delivered = scale.customers - math.floor(scale.customers * 3 / 10)
   local lines = {}
   fill("orders", function(add)
      for id = 1, scale.customers do
         lines[id] = random.uniform(5, 15)
         add("%d,%d,%d,%d,NOW(),%s,%d,1", warehouse, district, id, customer[id],
            id <= delivered and tostring(random.uniform(1, 10)) or "NULL", lines[id])
      end
   end)
   fill("order_line", function(add)
      for id = 1, scale.customers do
         for number = 1, lines[id] do
            local old = id <= delivered
            add("%d,%d,%d,%d,%d,%d,%s,5,%s,'%s'", warehouse, district, id, number,
               random.uniform(1, scale.items), warehouse, old and "NOW()" or "NULL",
               old and "0.00" or random.sql_of_cents(random.uniform(1, 999999)),
               random.letters(24))
         end
      end
   end)
   fill("new_order", function(add)
      for id = delivered + 1, scale.customers do
         add("%d,%d,%d", warehouse, district, id)
      end
   end)
end

local function load_district(warehouse, district)
   fill("district", function(add)
      add("%d,%d,'%s',%s,%s,%d.00,%d", warehouse, district, random.letters(6, 10),
         random.address(), random.rate(2000), 10 * scale.customers, scale.customers + 1)
   end)
   load_customers(warehouse, district)
   load_orders(warehouse, district)
end

-- Loads this thread's share of the units.
function loading.load(with, at_scale, thread, threads)
   connection, scale = with, at_scale
   local unit = 0
   local function mine()
      unit = unit + 1
      return (unit - 1) % threads == thread % threads
   end
   if mine() then
      load_items()
   end
   for warehouse = 1, scale.warehouses do
      if mine() then
         load_warehouse(warehouse)
      end
      for district = 1, 10 do
         if mine() then
            load_district(warehouse, district)
         end
      end
   end
end

return loading
