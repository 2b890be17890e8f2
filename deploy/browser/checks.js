// What every view has to have. Each function returns the problems that it finds, as texts.
(() => {
  const named = (element) => {
    const parts = []
    for (let e = element; e && e !== document.documentElement && parts.length < 4; e = e.parentElement) {
      parts.unshift(e.localName + (e.id ? '#' + e.id : '') + [...e.classList].map((c) => '.' + c).join(''))
    }
    const text = String(element.innerText || element.value || '').trim().replace(/\s+/g, ' ').slice(0, 40)
    return parts.join(' > ') + (text ? ` "${text}"` : '')
  }
  const shown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true})
  // Text for screen readers alone is clipped to a point.
  const clipped = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const box = e.getBoundingClientRect()
      if (box.width <= 1 && box.height <= 1 && getComputedStyle(e).overflow !== 'visible') return true
    }
    return false
  }

  const canvas = document.createElement('canvas')
  canvas.width = canvas.height = 1
  const pen = canvas.getContext('2d', {willReadFrequently: true})
  const known = new Map()
  const color = (text) => {
    if (!known.has(text)) {
      const plain = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(text)
      if (plain) {
        known.set(text, [+plain[1], +plain[2], +plain[3], plain[4] === undefined ? 1 : +plain[4]])
      } else {
        pen.clearRect(0, 0, 1, 1)
        pen.fillStyle = text
        pen.fillRect(0, 0, 1, 1)
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data
        known.set(text, [r, g, b, a / 255])
      }
    }
    return known.get(text)
  }
  const over = (top, bottom, alpha) => [0, 1, 2].map((i) => top[i] * alpha + bottom[i] * (1 - alpha))
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => {
      v /= 255
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)]
    return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05)
  }
  const backdrop = (element) => {
    const layers = []
    for (let e = element; e; e = e.parentElement) {
      const c = color(getComputedStyle(e).backgroundColor)
      if (c[3] > 0) layers.push(c)
      if (c[3] === 1) break
    }
    const dark = getComputedStyle(document.documentElement).colorScheme.includes('dark') && matchMedia('(prefers-color-scheme: dark)').matches
    return layers.reverse().reduce((below, c) => over(c, below, c[3]), dark ? [18, 18, 18] : [255, 255, 255])
  }
  const opacity = (element) => {
    let all = 1
    for (let e = element; e; e = e.parentElement) all *= +getComputedStyle(e).opacity
    return all
  }

  // WCAG 2.2, 1.4.3: 4.5 to 1, and 3 to 1 for large text.
  const contrast = () => {
    const problems = new Set()
    let texts = 0
    const judge = (element, style, what) => {
      const behind = backdrop(element)
      const ink = color(element instanceof SVGElement ? style.fill : style.color)
      const size = parseFloat(style.fontSize)
      const large = size >= 24 || size >= 18.66 && +style.fontWeight >= 700
      const got = ratio(over(ink, behind, ink[3] * opacity(element)), behind)
      texts++
      if (got < (large ? 3 : 4.5)) {
        const hex = (c) => '#' + c.map((v) => Math.round(v).toString(16).padStart(2, '0')).join('')
        problems.add(`contrast ${got.toFixed(2)} of ${what} ${style.color} on ${hex(behind)}: ${named(element)}`)
      }
    }
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    const seen = new Set()
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const e = node.parentElement
      if (!node.data.trim() || seen.has(e)) continue
      seen.add(e)
      if (e.closest('script, style, noscript, template, option, :disabled') || !shown(e) || clipped(e)) continue
      judge(e, getComputedStyle(e), 'text')
    }
    for (const e of document.querySelectorAll('input, textarea, select')) {
      if (e.disabled || e.type === 'hidden' || e.type === 'checkbox' || e.type === 'radio' || !shown(e) || clipped(e)) continue
      judge(e, getComputedStyle(e), 'the value')
      if (e.placeholder) judge(e, getComputedStyle(e, '::placeholder'), 'the placeholder')
    }
    for (const e of document.body.querySelectorAll('*')) {
      for (const part of ['::before', '::after']) {
        const style = getComputedStyle(e, part)
        if (/[\p{L}\p{N}]/u.test(style.content.replace(/^(none|normal|counters?\(|attr\().*/, '')) && shown(e) && !clipped(e)) judge(e, style, part)
      }
    }
    if (texts === 0) problems.add('the page has no text')
    return [...problems]
  }

  // Landmarks, headings, labels and ids.
  const structure = () => {
    const problems = []
    if (!document.documentElement.lang) problems.push('html has no lang')
    if (!document.title.trim()) problems.push('the page has no title')
    const mains = document.querySelectorAll('main, [role=main]').length
    if (mains !== 1) problems.push(`${mains} main landmarks`)
    const navs = [...document.querySelectorAll('nav, [role=navigation]')]
    if (navs.length === 0) problems.push('no navigation')
    if (navs.length > 1) {
      for (const n of navs) {
        if (!n.ariaLabel && !n.getAttribute('aria-labelledby')) problems.push(`one of several navigations has no label: ${named(n)}`)
      }
    }
    const headings = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(shown)
    const ones = headings.filter((h) => h.localName === 'h1').length
    if (ones !== 1) problems.push(`${ones} headings of level 1`)
    let before = 0
    for (const h of headings) {
      const level = +h.localName[1]
      if (level > before + 1) problems.push(`a heading of level ${level} follows one of level ${before}: ${named(h)}`)
      if (!h.innerText.trim()) problems.push(`an empty heading: ${named(h)}`)
      before = level
    }
    for (const e of document.querySelectorAll('input:not([type=hidden]):not([type=submit]):not([type=button]), select, textarea, meter, progress')) {
      if (e.matches('meter, progress') && e.closest('[aria-hidden=true]')) continue // the text beside it has the value
      if (!e.labels?.length && !e.ariaLabel && !e.getAttribute('aria-labelledby')) problems.push(`no label: ${named(e)} ${e.name}`)
    }
    for (const e of document.querySelectorAll('img')) {
      if (!e.hasAttribute('alt')) problems.push(`no alt: ${named(e)}`)
    }
    const ids = new Map()
    for (const e of document.querySelectorAll('[id]')) ids.set(e.id, (ids.get(e.id) || 0) + 1)
    for (const [id, count] of ids) if (count > 1) problems.push(`${count} elements have the id ${id}`)
    for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for', 'list']) {
      for (const e of document.querySelectorAll(`[${name}]`)) {
        for (const id of e.getAttribute(name).split(/\s+/)) {
          if (id && !document.getElementById(id)) problems.push(`${name} names no element: ${id} of ${named(e)}`)
        }
      }
    }
    return problems
  }

  // A page is as wide as the window: only parts of it scroll sideways.
  const width = () => {
    const page = document.scrollingElement
    if (page.scrollWidth <= page.clientWidth) return []
    const out = [...document.body.querySelectorAll('*')].filter((e) => shown(e) && e.getBoundingClientRect().right > page.clientWidth + 1)
    const inner = out.filter((e) => !out.some((o) => o !== e && e.contains(o)))
    return [`the page is ${page.scrollWidth} pixels wide in a window of ${page.clientWidth}: ${inner.slice(0, 3).map(named).join('; ')}`]
  }

  // Elements that the Tab key has to reach. Of radio buttons it reaches one of a group.
  const controls = () => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]')]
    .filter((e) => e.tabIndex >= 0 && !e.disabled && shown(e) && !e.closest('[inert]') &&
      !(e.type === 'radio' && !e.checked && document.querySelector(`input[type=radio][name="${CSS.escape(e.name)}"]:checked`)) &&
      !(e.localName === 'summary' && e !== e.parentElement.querySelector(':scope > summary')))
  const reached = new Map()
  const unseen = []
  // A live page replaces its sections during the walk: the same link in the same section was reached.
  const place = (e) => [e.closest('[data-section]')?.dataset.section, e.localName, e.getAttribute('href')].join(' ')
  const replaced = (e) => e.closest('[data-section]') && [...reached].some(([r, at]) => !r.isConnected && at === place(e))
  globalThis.tabs = {
    count: () => controls().length,
    // step notes the element that has the focus, and whether a person can see that.
    step: () => {
      const e = document.activeElement
      if (!e || e === document.body || reached.has(e)) return
      reached.set(e, place(e))
      const s = getComputedStyle(e)
      const outlined = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0
      const box = e.getBoundingClientRect()
      if (!outlined && s.boxShadow === 'none') unseen.push(`the focus cannot be seen: ${named(e)}`)
      if (box.bottom < 0 || box.top > innerHeight) unseen.push(`the focus is outside the window: ${named(e)}`)
    },
    problems: () => [...unseen, ...controls().filter((e) => !reached.has(e) && !replaced(e)).map((e) => `the Tab key does not reach ${named(e)}`)],
  }

  return {contrast, structure, width}
})()
