-- The nine tables (clause 1.3). Keys that the specification calls foreign are not declared.

local schema = {}

local address = [[
   %s_street_1 VARCHAR(20) NOT NULL, %s_street_2 VARCHAR(20) NOT NULL,
   %s_city VARCHAR(20) NOT NULL, %s_state CHAR(2) NOT NULL, %s_zip CHAR(9) NOT NULL]]

local function address_of(prefix)
   return (address:gsub("%%s", prefix))
end

local function stock_districts()
   local columns = {}
   for district = 1, 10 do
      columns[district] = string.format("s_dist_%02d CHAR(24) NOT NULL", district)
   end
   return table.concat(columns, ", ")
end

-- In the order of creation.
local tables = {
   {"warehouse", [[
      w_id INT NOT NULL, w_name VARCHAR(10) NOT NULL, ]] .. address_of("w") .. [[,
      w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(12,2) NOT NULL,
      PRIMARY KEY (w_id)]]},
   {"district", [[
      d_w_id INT NOT NULL, d_id TINYINT NOT NULL, d_name VARCHAR(10) NOT NULL,
      ]] .. address_of("d") .. [[,
      d_tax DECIMAL(4,4) NOT NULL, d_ytd DECIMAL(12,2) NOT NULL, d_next_o_id INT NOT NULL,
      PRIMARY KEY (d_w_id, d_id)]]},
   {"customer", [[
      c_w_id INT NOT NULL, c_d_id TINYINT NOT NULL, c_id INT NOT NULL,
      c_first VARCHAR(16) NOT NULL, c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL,
      ]] .. address_of("c") .. [[,
      c_phone CHAR(16) NOT NULL, c_since DATETIME NOT NULL, c_credit CHAR(2) NOT NULL,
      c_credit_lim DECIMAL(12,2) NOT NULL, c_discount DECIMAL(4,4) NOT NULL,
      c_balance DECIMAL(12,2) NOT NULL, c_ytd_payment DECIMAL(12,2) NOT NULL,
      c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data VARCHAR(500) NOT NULL,
      PRIMARY KEY (c_w_id, c_d_id, c_id),
      KEY customer_by_name (c_w_id, c_d_id, c_last, c_first)]]},
   {"history", [[
      h_c_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, h_c_w_id INT NOT NULL,
      h_d_id TINYINT NOT NULL, h_w_id INT NOT NULL, h_date DATETIME NOT NULL,
      h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL]]},
   {"new_order", [[
      no_w_id INT NOT NULL, no_d_id TINYINT NOT NULL, no_o_id INT NOT NULL,
      PRIMARY KEY (no_w_id, no_d_id, no_o_id)]]},
   {"orders", [[
      o_w_id INT NOT NULL, o_d_id TINYINT NOT NULL, o_id INT NOT NULL, o_c_id INT NOT NULL,
      o_entry_d DATETIME NOT NULL, o_carrier_id TINYINT, o_ol_cnt TINYINT NOT NULL,
      o_all_local TINYINT NOT NULL,
      PRIMARY KEY (o_w_id, o_d_id, o_id),
      KEY orders_by_customer (o_w_id, o_d_id, o_c_id, o_id)]]},
   {"order_line", [[
      ol_w_id INT NOT NULL, ol_d_id TINYINT NOT NULL, ol_o_id INT NOT NULL,
      ol_number TINYINT NOT NULL, ol_i_id INT NOT NULL, ol_supply_w_id INT NOT NULL,
      ol_delivery_d DATETIME, ol_quantity TINYINT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL,
      ol_dist_info CHAR(24) NOT NULL,
      PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)]]},
   {"item", [[
      i_id INT NOT NULL, i_im_id INT NOT NULL, i_name VARCHAR(24) NOT NULL,
      i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL,
      PRIMARY KEY (i_id)]]},
   {"stock", [[
      s_w_id INT NOT NULL, s_i_id INT NOT NULL, s_quantity SMALLINT NOT NULL,
      ]] .. stock_districts() .. [[,
      s_ytd INT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL,
      s_data VARCHAR(50) NOT NULL,
      PRIMARY KEY (s_w_id, s_i_id)]]},
}

function schema.create(connection)
   for _, entry in ipairs(tables) do
      connection:query(string.format(
         "CREATE TABLE %s (%s) ENGINE=InnoDB DEFAULT CHARSET=latin1", entry[1], entry[2]))
   end
end

function schema.drop(connection)
   for _, entry in ipairs(tables) do
      connection:query("DROP TABLE IF EXISTS " .. entry[1])
   end
end

return schema
