-- The five transactions: their input (clauses 2.4.1 to 2.8.1) and their steps (2.4.2 to 2.8.2).
--
-- Input is drawn before a transaction begins, so that a transaction the database gives up for a
-- deadlock is repeated with the same input. Reads that decide a write lock their rows.

local random = require("tpcc_random")

local transactions = {}
transactions.__index = transactions

function transactions.new(connection, scale)
   return setmetatable({connection = connection, scale = scale}, transactions)
end

function transactions:input(name)
   return self["input_of_" .. name](self)
end

-- "committed" or "rolled_back".
function transactions:execute(name, input)
   return self[name](self, input) or "committed"
end

function transactions:query(...)
   return self.connection:query(string.format(...))
end

-- Returns the columns of the one row of a query, or nothing if there is none.
function transactions:row(...)
   return self.connection:query_row(string.format(...))
end

-- Does the same for a row that must exist.
function transactions:certain_row(...)
   local first, second, third, fourth = self:row(...)
   if first == nil then
      error("no row, though the load made one: " .. string.format(...))
   end
   return first, second, third, fourth
end

function transactions:any_warehouse()
   return random.uniform(1, self.scale.warehouses)
end

function transactions:other_warehouse(than)
   local warehouse = random.uniform(1, self.scale.warehouses - 1)
   return warehouse < than and warehouse or warehouse + 1
end

-- Sixty of a hundred customers are selected by last name.
function transactions:any_customer()
   if random.percent(60) then
      return {last = random.last_name_at_run(self.scale.customers)}
   end
   return {id = random.customer_id(self.scale.customers)}
end

-- Of those with a last name, returns the one in the middle by first name, rounded up (2.5.2.2), or
-- nil if nobody has the name.
function transactions:find_customer(warehouse, district, customer)
   if customer.id then
      return customer.id
   end
   local found = self:query(
      "SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' " ..
      "ORDER BY c_first", warehouse, district, customer.last)
   local middle
   for _ = 1, math.ceil(found.nrows / 2) do
      middle = tonumber(found:fetch_row()[1])
   end
   return middle
end

-- New-Order -----------------------------------------------------------------------------------

function transactions:input_of_new_order()
   local warehouse = self:any_warehouse()
   local lines, seen, all_local = {}, {}, 1
   for number = 1, random.uniform(5, 15) do
      local item
      repeat
         item = random.item_id(self.scale.items)
      until not seen[item]
      seen[item] = true
      local supply = warehouse
      if self.scale.warehouses > 1 and random.percent(1) then
         supply, all_local = self:other_warehouse(warehouse), 0
      end
      lines[number] = {item = item, supply = supply, quantity = random.uniform(1, 10)}
   end
   -- All transactions lock stock in one order, so that new orders do not deadlock with each other.
   table.sort(lines, function(a, b)
      if a.supply ~= b.supply then
         return a.supply < b.supply
      end
      return a.item < b.item
   end)
   -- One in a hundred ends in an item that does not exist, and is rolled back (2.4.1.4).
   if random.percent(1) then
      lines[#lines].item = self.scale.items + 1
   end
   return {
      warehouse = warehouse, district = random.uniform(1, 10), lines = lines,
      customer = random.customer_id(self.scale.customers), all_local = all_local,
   }
end

function transactions:new_order(input)
   local w, d = input.warehouse, input.district
   self:query("BEGIN")
   self:certain_row("SELECT c_discount, c_last, c_credit, w_tax FROM warehouse, customer " ..
      "WHERE w_id = %d AND c_w_id = w_id AND c_d_id = %d AND c_id = %d", w, d, input.customer)
   local order = tonumber((self:certain_row("SELECT d_next_o_id, d_tax FROM district " ..
      "WHERE d_w_id = %d AND d_id = %d FOR UPDATE", w, d)))
   self:query("UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d",
      order + 1, w, d)
   self:query("INSERT INTO orders VALUES (%d, %d, %d, %d, NOW(), NULL, %d, %d)",
      w, d, order, input.customer, #input.lines, input.all_local)
   self:query("INSERT INTO new_order VALUES (%d, %d, %d)", w, d, order)
   for number, line in ipairs(input.lines) do
      local price = self:row("SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", line.item)
      if price == nil then
         self:query("ROLLBACK")
         return "rolled_back"
      end
      self:new_order_line(w, d, order, number, line, tonumber(price))
   end
   self:query("COMMIT")
end

function transactions:new_order_line(w, d, order, number, line, price)
   local quantity, information = self:certain_row("SELECT s_quantity, s_dist_%02d, s_data " ..
      "FROM stock WHERE s_w_id = %d AND s_i_id = %d FOR UPDATE", d, line.supply, line.item)
   local left = tonumber(quantity) - line.quantity
   if left < 10 then
      left = left + 91
   end
   self:query("UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, " ..
      "s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + %d " ..
      "WHERE s_w_id = %d AND s_i_id = %d",
      left, line.quantity, line.supply == w and 0 or 1, line.supply, line.item)
   local cents = math.floor(price * 100 + 0.5) * line.quantity
   self:query("INSERT INTO order_line VALUES (%d, %d, %d, %d, %d, %d, NULL, %d, %s, '%s')",
      w, d, order, number, line.item, line.supply, line.quantity, random.sql_of_cents(cents),
      information)
end

-- Payment -------------------------------------------------------------------------------------

function transactions:input_of_payment()
   local warehouse, district = self:any_warehouse(), random.uniform(1, 10)
   local input = {
      warehouse = warehouse, district = district, customer = self:any_customer(),
      of_warehouse = warehouse, of_district = district,
      amount = random.sql_of_cents(random.uniform(100, 500000)),
   }
   -- Fifteen of a hundred pay away from home.
   if self.scale.warehouses > 1 and random.percent(15) then
      input.of_warehouse = self:other_warehouse(warehouse)
      input.of_district = random.uniform(1, 10)
   end
   return input
end

function transactions:payment(input)
   local w, d, cw, cd = input.warehouse, input.district, input.of_warehouse, input.of_district
   local amount = input.amount
   self:query("BEGIN")
   self:query("UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %d", amount, w)
   local w_name = self:certain_row("SELECT w_name, w_street_1, w_city, w_zip FROM warehouse " ..
      "WHERE w_id = %d", w)
   self:query("UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %d AND d_id = %d",
      amount, w, d)
   local d_name = self:certain_row("SELECT d_name, d_street_1, d_city, d_zip FROM district " ..
      "WHERE d_w_id = %d AND d_id = %d", w, d)
   local c = self:find_customer(cw, cd, input.customer)
   if c == nil then
      error("nobody is called " .. input.customer.last .. ", though the load made one")
   end
   local credit = self:certain_row("SELECT c_credit, c_first, c_last, c_balance FROM customer " ..
      "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d FOR UPDATE", cw, cd, c)
   local note = ""
   if credit == "BC" then
      note = string.format(", c_data = LEFT(CONCAT('%d %d %d %d %d %s|', c_data), 500)",
         c, cd, cw, d, w, amount)
   end
   self:query("UPDATE customer SET c_balance = c_balance - %s, " ..
      "c_ytd_payment = c_ytd_payment + %s, c_payment_cnt = c_payment_cnt + 1%s " ..
      "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", amount, amount, note, cw, cd, c)
   self:query("INSERT INTO history VALUES (%d, %d, %d, %d, %d, NOW(), %s, '%s    %s')",
      c, cd, cw, d, w, amount, w_name, d_name)
   self:query("COMMIT")
end

-- Order-Status --------------------------------------------------------------------------------

function transactions:input_of_order_status()
   return {warehouse = self:any_warehouse(), district = random.uniform(1, 10),
      customer = self:any_customer()}
end

function transactions:order_status(input)
   local w, d = input.warehouse, input.district
   self:query("BEGIN")
   local c = self:find_customer(w, d, input.customer)
   if c == nil then
      error("nobody is called " .. input.customer.last .. ", though the load made one")
   end
   self:certain_row("SELECT c_balance, c_first, c_middle, c_last FROM customer " ..
      "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", w, d, c)
   local order = self:certain_row("SELECT o_id, o_entry_d, o_carrier_id FROM orders " ..
      "WHERE o_w_id = %d AND o_d_id = %d AND o_c_id = %d ORDER BY o_id DESC LIMIT 1", w, d, c)
   self:query("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d " ..
      "FROM order_line WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s", w, d, order)
   self:query("COMMIT")
end

-- Delivery ------------------------------------------------------------------------------------

function transactions:input_of_delivery()
   return {warehouse = self:any_warehouse(), carrier = random.uniform(1, 10)}
end

function transactions:delivery(input)
   self:query("BEGIN")
   for district = 1, 10 do
      self:deliver_oldest(input.warehouse, district, input.carrier)
   end
   self:query("COMMIT")
end

-- Every read locks: a consistent read could be older than the order found.
function transactions:deliver_oldest(w, d, carrier)
   local order = self:row("SELECT no_o_id FROM new_order WHERE no_w_id = %d AND no_d_id = %d " ..
      "ORDER BY no_o_id LIMIT 1 FOR UPDATE", w, d)
   if order == nil then
      return
   end
   self:query("DELETE FROM new_order WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %s",
      w, d, order)
   local customer = self:certain_row("SELECT o_c_id FROM orders " ..
      "WHERE o_w_id = %d AND o_d_id = %d AND o_id = %s FOR UPDATE", w, d, order)
   self:query("UPDATE orders SET o_carrier_id = %d " ..
      "WHERE o_w_id = %d AND o_d_id = %d AND o_id = %s", carrier, w, d, order)
   self:query("UPDATE order_line SET ol_delivery_d = NOW() " ..
      "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s", w, d, order)
   local amount = self:certain_row("SELECT SUM(ol_amount) FROM order_line " ..
      "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %s FOR UPDATE", w, d, order)
   self:query("UPDATE customer SET c_balance = c_balance + %s, " ..
      "c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = %d AND c_d_id = %d AND c_id = %s",
      amount, w, d, customer)
end

-- Stock-Level ---------------------------------------------------------------------------------

function transactions:input_of_stock_level()
   return {warehouse = self:any_warehouse(), district = random.uniform(1, 10),
      threshold = random.uniform(10, 20)}
end

function transactions:stock_level(input)
   local w, d = input.warehouse, input.district
   self:query("BEGIN")
   local next_order = tonumber((self:certain_row("SELECT d_next_o_id FROM district " ..
      "WHERE d_w_id = %d AND d_id = %d", w, d)))
   self:query("SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock " ..
      "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id >= %d AND ol_o_id < %d " ..
      "AND s_w_id = %d AND s_i_id = ol_i_id AND s_quantity < %d",
      w, d, next_order - 20, next_order, w, input.threshold)
   self:query("COMMIT")
end

return transactions
