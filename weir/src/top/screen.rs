// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The terminal: reads keys and draws the screen.

use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::draw::{ScreenView, draw};
use super::feed::{Feed, FeedMessage};
use super::model::{ScreenModel, Sort};
use weir_platform::failure::Failure;

/// A terminal that is restored when this value is dropped, even by a panic.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    model: ScreenModel,
    /// The model that is drawn while a pause lasts.
    still: Option<ScreenModel>,
    view: ScreenView,
    /// When the node last answered, and why it does not any more.
    heard: Instant,
    lost: Option<String>,
    interval: Duration,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// Standard output is no terminal.
    pub(super) fn open(interval: Duration) -> Result<Self, Failure> {
        let terminal = ratatui::try_init()
            .map_err(|error| format!("the terminal: {error}; --once needs none"))?;
        Ok(Self {
            terminal,
            model: ScreenModel::default(),
            still: None,
            view: ScreenView::default(),
            heard: Instant::now(),
            lost: None,
            interval,
        })
    }

    /// Draws the feed's messages until somebody quits.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn run(mut self, feed: &Feed) -> Result<(), Failure> {
        loop {
            while let Some(news) = feed.next() {
                match news {
                    FeedMessage::Sample(sample) => {
                        self.model.take(*sample);
                        (self.heard, self.lost) = (Instant::now(), None);
                    }
                    FeedMessage::Lost(why) => self.lost = Some(why),
                }
            }
            self.draw()?;
            // As long as a key may wait, and events that have come.
            if event::poll(KEY_WAIT)?
                && let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !self.press(key)
            {
                return Ok(());
            }
            // What else comes, as another size, is drawn at once.
        }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let silent = self.heard.elapsed();
        let late = silent > self.interval + LATE;
        let why = self.lost.clone().or_else(|| late.then(|| "nothing comes".to_owned()));
        self.view.lost = why.map(|why| (silent.as_secs(), why));
        self.view.paused = self.still.is_some();
        let model = self.still.as_ref().unwrap_or(&self.model);
        let view = &mut self.view;
        self.terminal.draw(|frame| draw(frame, model, view))?;
        Ok(())
    }

    /// Executes a key. Returns false if the program is to end.
    fn press(&mut self, key: KeyEvent) -> bool {
        let view = &mut self.view;
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Esc | KeyCode::Char('?' | 'h') if view.help => view.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('?' | 'h') => view.help = true,
            KeyCode::Char('p' | ' ') => {
                self.still = match self.still.take() {
                    Some(_) => None,
                    None => Some(self.model.clone()),
                };
            }
            KeyCode::Char('s') => view.sort = view.sort.next(),
            KeyCode::Char('S') => view.reversed = !view.reversed,
            KeyCode::Char('n') => view.sort = Sort::Name,
            KeyCode::Char('r') => view.sort = Sort::Rate,
            KeyCode::Char('g') => view.sort = Sort::Guarantee,
            KeyCode::Char('w') => view.sort = Sort::Queue,
            KeyCode::Char('l') => view.sort = Sort::Delay,
            KeyCode::Char('x') => view.sort = Sort::Drops,
            KeyCode::Char('d') => view.way = view.way.other(),
            KeyCode::Up | KeyCode::Char('k') => view.selected = view.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => view.selected = view.selected.saturating_add(1),
            _ => {}
        }
        true
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// A key is followed at once; what the node says, ten times a second.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Beyond the interval, before the numbers are called old.
const LATE: Duration = Duration::from_secs(2);
