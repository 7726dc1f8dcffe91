// Without this script the page is complete: it shows the copy buttons, and opens what is folded for printing.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const said = document.getElementById("copied");
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      said.textContent = button.textContent = "Copied";
    } catch {
      said.textContent = button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
