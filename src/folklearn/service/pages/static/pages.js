"use strict";

// Numbers come every second, as events; words, tables and pictures are taken from the page itself,
// which is fetched anew, so that everything is worded in one place: the templates.

const EVERY = 5000; // milliseconds between two looks at the page
const SAMPLES = 60; // seconds of a course
const LATELY = 5; // seconds over which speed is measured

const FORMATS = {
  count: (value) => Math.round(value).toLocaleString("en"),
  loss: (value) => (Math.abs(value) >= 0.01 || value === 0 ? value.toFixed(3) : value.toPrecision(2)),
  share: (value) => `${Number((100 * value).toPrecision(3))} %`,
};

async function refresh() {
  const answer = await fetch(location.pathname);
  if (answer.redirected || answer.status === 404) location.reload(); // logged out, or deleted
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const parts = [...document.querySelectorAll("[data-live]")];
  if (parts.length !== fresh.querySelectorAll("[data-live]").length) location.reload();
  for (const old of parts) {
    const part = fresh.getElementById(old.id);
    const isInUse = old.contains(document.activeElement); // by a keyboard, which would lose it
    if (isInUse || part === null || part.outerHTML === old.outerHTML) continue;
    const image = document.adoptNode(part).querySelector("img");
    if (image === null) {
      old.replaceChildren(...part.childNodes); // the part stays: readers of screens listen to it
    } else {
      image.loading = "eager";
      await image.decode().catch(() => {}); // so that nothing flickers
      old.replaceWith(part);
    }
  }
}

function watch(events) {
  const samples = [];
  let latest = null;
  let shown = null;
  const source = new EventSource(events.dataset.events);
  source.onmessage = (message) => {
    latest = JSON.parse(message.data);
    for (const place of document.querySelectorAll("[data-number]")) {
      const value = latest[place.dataset.number];
      if (typeof value === "number") place.textContent = FORMATS[place.dataset.format](value);
    }
  };
  const connection = document.getElementById("connection");
  source.onopen = () => { connection.hidden = true; };
  source.onerror = () => {
    connection.hidden = false;
    if (source.readyState === EventSource.CLOSED) location.reload(); // the page will say why
  };
  setInterval(() => {
    if (latest !== null) sample(samples, latest);
  }, 1000);
  setInterval(() => {
    if (latest === null || latest.version === shown || document.hidden) return;
    shown = latest.version;
    refresh();
  }, EVERY);
}

function sample(samples, latest) {
  const before = samples.at(-LATELY);
  const now = { time: performance.now(), rows: latest.rows, waiting: latest.waiting, rate: null };
  if (before !== undefined) {
    now.rate = (1000 * (now.rows - before.rows)) / (now.time - before.time);
    document.querySelector('[data-number="rate"]').textContent = FORMATS.count(now.rate);
  }
  samples.push(now);
  if (samples.length > SAMPLES) samples.shift();
  for (const course of document.querySelectorAll("[data-course]")) {
    draw(course, samples.map((one) => one[course.dataset.course]).filter((one) => one !== null));
  }
}

function draw(course, values) {
  const top = Math.max(1, ...values);
  const points = values.map((value, i) => {
    const x = 120 - (values.length - 1 - i) * (120 / (SAMPLES - 1));
    return `${x.toFixed(1)},${(23 - (22 * value) / top).toFixed(1)}`;
  });
  course.querySelector("polyline").setAttribute("points", points.join(" "));
}

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.onclick = async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
    };
  }
}

const events = document.querySelector("[data-events]");
if (events !== null) {
  watch(events);
} else {
  setInterval(() => { if (!document.hidden) refresh(); }, EVERY);
}
