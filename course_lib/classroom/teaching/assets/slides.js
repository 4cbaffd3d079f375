/* Nothing may lie outside a slide: each is measured in the browser that shows it, with that browser's fonts. Pictures
   take the room that words leave. Where the words are too many, they get smaller, down to a size that the last row can
   read. Where that is not enough, the slide goes on on another. */

const SMALLEST = 0.84, STEP = 0.04;  // of the type's size
const LARGEST = 1.4;                 // where there are few words and no picture
const LEAST_PICTURE = 300;           // pixels that a picture needs in height
const LEAST_CODE = 17;               // pixels of the type in which code still is read

const inside = (body, stack) =>
  stack.scrollHeight <= body.clientHeight + 1 && stack.scrollWidth <= body.clientWidth + 1;

const isStrip = image => image.naturalWidth > 5 * image.naturalHeight;

/* Put a square or high picture beside the words, where both are. */
function arrange(stack) {
  const blocks = [...stack.children], pictures = blocks.filter(block => block.querySelector('img'));
  if (pictures.length !== 1 || blocks.length < 2) return;
  const image = pictures[0].querySelector('img');
  if (image.naturalWidth > 1.35 * image.naturalHeight) return;
  const words = document.createElement('div');
  words.className = 'words';
  words.append(...blocks.filter(block => block !== pictures[0]));
  pictures[0].classList.add('picture');
  stack.classList.add('beside');
  stack.append(words);
}

/* Give the pictures what is left of the height; false if that is too little. */
function sizePictures(body, stack) {
  const images = [...stack.querySelectorAll('img')].filter(image => !isStrip(image));
  if (!images.length) return true;
  if (stack.classList.contains('beside')) {
    const caption = stack.querySelector('.picture figcaption');
    const height = body.clientHeight - (caption ? caption.offsetHeight + 10 : 0);
    const ratio = images[0].naturalWidth / images[0].naturalHeight;
    images[0].style.height = '';
    images[0].style.setProperty('width', `${Math.min(height * ratio, 0.55 * body.clientWidth)}px`, 'important');
    return true;
  }
  for (const image of images) image.style.setProperty('width', '0', 'important');
  const each = (body.clientHeight - stack.scrollHeight) / images.length;
  for (const image of images) {
    const ratio = image.naturalWidth / image.naturalHeight;
    const width = Math.min(body.clientWidth, Math.max(each, 40) * ratio);
    image.style.setProperty('width', `${width}px`, 'important');
  }
  return each >= LEAST_PICTURE || images.every(image => image.offsetWidth >= body.clientWidth - 1);
}

/* Code keeps its lines: its type gets smaller until the longest fits, and only then is it wrapped. */
function sizeCode(stack, scale) {
  for (const pre of stack.querySelectorAll('pre')) {
    const size = 22 * scale;
    pre.style.fontSize = `${size}px`;
    pre.style.whiteSpace = '';
    if (pre.scrollWidth <= pre.clientWidth) continue;
    const {paddingLeft, paddingRight} = getComputedStyle(pre), padding = parseFloat(paddingLeft) + parseFloat(paddingRight);
    const needed = size * (pre.clientWidth - padding) / (pre.scrollWidth - padding) - 0.1;
    pre.style.fontSize = `${Math.max(needed, LEAST_CODE)}px`;
    if (pre.scrollWidth > pre.clientWidth) pre.style.whiteSpace = 'pre-wrap';
  }
}

function apply(section, scale) {
  const body = section.querySelector('.body'), stack = body.querySelector('.stack');
  stack.style.fontSize = `${parseFloat(stack.dataset.size) * scale}px`;
  sizeCode(stack, scale);
  const roomy = sizePictures(body, stack);
  return inside(body, stack) && roomy;
}

function fits(section) {
  const stack = section.querySelector('.stack');
  stack.dataset.size ??= parseFloat(getComputedStyle(stack).fontSize);
  const largest = stack.querySelector('img') ? 1 : LARGEST;
  for (let scale = largest; scale >= SMALLEST; scale -= STEP) if (apply(section, scale)) return true;
  return false;
}

/* A second slide with the same heading, after the first. */
function continued(section) {
  const next = section.cloneNode(true), heading = next.querySelector('h2');
  next.querySelector('.stack').replaceChildren();
  const part = Number(section.dataset.part ?? 1) + 1;
  next.dataset.part = part;
  heading?.querySelector('.part')?.remove();
  heading?.insertAdjacentHTML('beforeend', ` <span class="part">(${part})</span>`);
  section.after(next);
  return next;
}

const goesWithNext = (block, next) =>
  block.matches('.heading') || (block.matches('.quote') && next.matches('.answer'));

/* What was to wait for an answer on the first slide need not wait on the second. */
function unwait(stack) {
  for (const block of stack.children) {
    if (block.matches('.answer')) return;
    block.classList.remove('fragment');
  }
}

/* Move blocks to a second slide until the first fits; an answer goes with its question, a heading with its text. */
function split(section) {
  const stack = section.querySelector('.stack');
  if (stack.classList.contains('beside')) {
    stack.append(...stack.querySelector('.words').children);
    stack.querySelector('.words').remove();
    stack.classList.remove('beside');
    if (fits(section)) return;
  }
  if (stack.children.length < 2) return squeeze(section);
  const next = continued(section), onward = next.querySelector('.stack');
  while (stack.children.length > 1 && !fits(section)) {
    do onward.prepend(stack.lastElementChild);
    while (stack.children.length > 1 && goesWithNext(stack.lastElementChild, onward.firstElementChild));
  }
  if (!fits(section)) squeeze(section);
  unwait(onward);
  fit(next);
}

/* One block alone that is too large: the whole of it gets smaller. */
function squeeze(section) {
  const body = section.querySelector('.body'), stack = body.querySelector('.stack');
  apply(section, SMALLEST);
  if (inside(body, stack)) return;
  stack.style.zoom = Math.min(body.clientHeight / stack.scrollHeight, body.clientWidth / stack.scrollWidth) * 0.99;
}

function fit(section) {
  section.classList.add('measured');
  arrange(section.querySelector('.stack'));
  if (!fits(section)) split(section);
  section.classList.remove('measured');
}

async function showSlides(size) {
  await Promise.all([...document.images].map(image => image.decode().catch(() => {})));
  document.body.classList.add('measuring');
  document.querySelectorAll('.reveal .slides > section').forEach(fit);
  document.body.classList.remove('measuring');
  await Reveal.initialize({...size, margin: 0, minScale: 0.1, maxScale: 4, center: false, hash: true, transition: 'none',
                           backgroundTransition: 'none', controls: false, slideNumber: 'c/t', plugins: [RevealNotes]});
}
