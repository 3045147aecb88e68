(function () {
  // Airflow shows its theme as a class of its own page; ours lies in a frame of it. Alone: what Airflow remembers.
  var own = document.documentElement, shown;
  function airflow() { try { return parent !== window ? parent.document.documentElement : null; } catch (e) { return null; } }
  function follow() {
    var classes = shown ? shown.classList : null, kept = null;
    if (!classes) { try { kept = localStorage.getItem("theme"); } catch (e) { kept = null; } }
    var theme = classes ? (classes.contains("dark") ? "dark" : classes.contains("light") ? "light" : "") : kept;
    if (theme === "dark" || theme === "light") own.setAttribute("data-theme", theme); else own.removeAttribute("data-theme");
  }
  shown = airflow();
  follow();
  if (shown) new MutationObserver(follow).observe(shown, { attributes: true, attributeFilter: ["class"] });
})();
