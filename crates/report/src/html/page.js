(function () {
  var root = document.documentElement, button = document.querySelector(".theme");
  var kept = null;
  try { kept = localStorage.getItem("dovetail-theme"); } catch (e) { /* A file may have no storage. */ }
  function dark() {
    var chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function label() { button.textContent = dark() ? "Light" : "Dark"; }
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  if (button) {
    button.hidden = false;
    label();
    button.addEventListener("click", function () {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("dovetail-theme", root.dataset.theme); } catch (e) { /* As above. */ }
      label();
    });
  }
  document.querySelectorAll("table.sort").forEach(function (table) {
    var heads = table.tHead.rows[0].cells, body = table.tBodies[0];
    Array.prototype.forEach.call(heads, function (head, column) {
      head.classList.add("sortable");
      head.tabIndex = 0;
      function sort() {
        var down = head.getAttribute("aria-sort") === "ascending";
        Array.prototype.forEach.call(heads, function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        function key(row) {
          var raw = row.cells[column].dataset.v;
          return raw === undefined ? row.cells[column].textContent.trim() : raw === "" ? Infinity : Number(raw);
        }
        Array.prototype.slice.call(body.rows).sort(function (a, b) {
          var x = key(a), y = key(b);
          var order = typeof x === "string" ? x.localeCompare(y) : x === y ? 0 : x < y ? -1 : 1;
          return down ? -order : order;
        }).forEach(function (row) { body.appendChild(row); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
      });
    });
  });
})();
