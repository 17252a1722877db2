// Values under the pointer. Without this the page shows the same: the tables have all values.
(() => {
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  const words = JSON.parse(document.getElementById('words').textContent);
  let shown = null;
  const leave = () => {
    tip.hidden = true;
    if (shown) shown.querySelectorAll('.dim').forEach(part => part.classList.remove('dim'));
    shown = null;
  };
  const place = (x, y) => {
    const { width, height } = tip.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const left = Math.max(4, Math.min(x + 14, wide - width - 4));
    const top = y + 18 + height < innerHeight ? y + 18 : Math.max(4, y - height - 14);
    tip.style.transform = `translate(${left}px,${top}px)`;
  };
  for (const svg of document.querySelectorAll('figure svg[data-spots]')) {
    const spots = svg.dataset.spots.split(',').map(spot => {
      const [x, y, colour, place] = spot.split(' ');
      return { x: +x, y: +y, words: words[place], colour: '#' + colour };
    });
    const lines = svg.dataset.lines !== undefined;
    const colours = new Set(spots.map(spot => spot.colour));
    const colour = part => [part.getAttribute('stroke'), part.getAttribute('fill')].find(name => colours.has(name));
    const parts = lines ? [...svg.querySelectorAll('[stroke],[fill]')].filter(colour) : [];
    const point = event => {
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const far = spot => Math.hypot(spot.x - x, spot.y - y);
      const near = spots.reduce((a, b) => (far(b) < far(a) ? b : a));
      // A dot's line may be pointed at anywhere.
      if (lines ? far(near) > 42 : Math.min(...spots.map(spot => Math.abs(spot.y - y))) > 12) return leave();
      const chosen = lines ? near : spots.reduce((a, b) => (Math.abs(b.y - y) < Math.abs(a.y - y) ? b : a));
      // Lines that meet are told together.
      const met = lines ? spots.filter(spot => spot.x === chosen.x && Math.abs(spot.y - chosen.y) < 5) : [chosen];
      if (shown !== svg) leave();
      shown = svg;
      tip.replaceChildren(...met.slice(0, 4).map(spot => {
        const block = document.createElement('div');
        block.textContent = spot.words;
        return block;
      }));
      const on = new Set(met.map(spot => spot.colour));
      for (const part of parts) part.classList.toggle('dim', !on.has(colour(part)));
      tip.hidden = false;
      place(event.clientX, event.clientY);
    };
    svg.addEventListener('pointermove', point);
    svg.addEventListener('pointerdown', point);
    svg.addEventListener('pointerleave', event => event.pointerType === 'mouse' && leave());
  }
  addEventListener('pointerdown', event => event.target.closest('figure svg') || leave());
  addEventListener('scroll', leave, { passive: true });
  addEventListener('keydown', event => event.key === 'Escape' && leave());
})();
